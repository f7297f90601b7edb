import { type Http, Pages, segment } from "./http.js";
import type { ShellSession } from "./types.js";

/** Shells that stay: commands with such a session have its directory, variables and functions. */
export class Sessions {
  private readonly path: string;

  constructor(
    private readonly http: Http,
    box: string,
  ) {
    this.path = `/sandboxes/${segment(box)}/sessions`;
  }

  create(name: string): Promise<ShellSession> {
    return this.http.json<ShellSession>({ method: "POST", path: this.path, json: { name }, key: this.http.unique() });
  }

  list(): Pages<ShellSession> {
    return new Pages<ShellSession>(this.http, { method: "GET", path: this.path });
  }

  async remove(name: string): Promise<void> {
    await this.http.done({ method: "DELETE", path: `${this.path}/${segment(name)}` });
  }
}
