import { type Call, type Http, Pages, type Query, segment } from "./http.js";
import type { ChangeNetworkOptions, Connection, NetworkState, SetNetworkOptions } from "./types.js";

/** What a sandbox may reach. */
export class Network {
  private readonly path: string;

  constructor(
    private readonly http: Http,
    box: string,
  ) {
    this.path = `/sandboxes/${segment(box)}/network`;
  }

  /** What it may reach, and what it was denied. */
  get(): Promise<NetworkState> {
    return this.http.json<NetworkState>(this.call("GET", ""));
  }

  /** Sets what it may reach. It holds at once for new connections; with cut also for those that are open. */
  set(options: SetNetworkOptions): Promise<NetworkState> {
    return this.http.json<NetworkState>({ ...this.call("PUT", ""), json: options });
  }

  /** Puts hosts on the list and takes others off. */
  change(options: ChangeNetworkOptions): Promise<NetworkState> {
    return this.http.json<NetworkState>({ ...this.call("PATCH", ""), json: options });
  }

  /** What it reached, the newest first unless it is asked otherwise. */
  log(options: { since?: Date | string; order?: "newest" | "oldest" } = {}): Pages<Connection> {
    const { since, order } = options;
    return new Pages<Connection>(this.http, this.call("GET", "/log", { since: since instanceof Date ? since.toISOString() : since, order }));
  }

  private call(method: Call["method"], path: string, query?: Query): Call {
    return { method, path: this.path + path, query };
  }
}
