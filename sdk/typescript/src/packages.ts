import type { Result } from "./commands.js";
import { type Http, segment } from "./http.js";
import type { ExecResult } from "./types.js";

/** Installs packages by their names, with versions if you like; options, URLs and paths are refused. */
export class Packages {
  constructor(
    private readonly http: Http,
    private readonly box: string,
  ) {}

  /** Python packages. */
  pip(packages: string[]): Promise<Result> {
    return this.install("pip", packages);
  }

  /** Packages of Node. */
  npm(packages: string[]): Promise<Result> {
    return this.install("npm", packages);
  }

  /** Debian packages. */
  apt(packages: string[]): Promise<Result> {
    return this.install("apt", packages);
  }

  private install(manager: string, packages: string[]): Promise<Result> {
    const path = `/sandboxes/${segment(this.box)}/packages/${manager}`;
    return this.http.json<ExecResult>({ method: "POST", path, json: { packages } });
  }
}
