import { type BytesOptions, bytesResult, CommandStream, type Result } from "./commands.js";
import { bodyOf, type Data } from "./bytes.js";
import { type Call, type Http, type Query, segment } from "./http.js";
import type { ExecInfo } from "./types.js";

/** Where following a command begins, in bytes of each of its streams. */
export interface Offset {
  stdout?: number;
  stderr?: number;
}

/** A command that runs in a sandbox, or ended in the last hour. */
export class Process {
  constructor(
    private readonly http: Http,
    private readonly box: string,
    /** The command's id. */
    readonly execId: string,
  ) {}

  /** What it is and does; the result is there when it has ended. */
  info(): Promise<ExecInfo> {
    return this.http.json<ExecInfo>(this.call("GET", ""));
  }

  /** Waits for its end, or for a number of seconds: the result is null while it runs. */
  async wait(options: { timeout?: number; encoding: "bytes" }): Promise<Result<Uint8Array> | null>;
  async wait(options?: { timeout?: number; encoding?: "text"; signal?: AbortSignal }): Promise<Result | null>;
  async wait(options: { timeout?: number; encoding?: "text" | "bytes"; signal?: AbortSignal } = {}): Promise<Result | Result<Uint8Array> | null> {
    const bytes = options.encoding === "bytes";
    const query = { timeout: options.timeout, encoding: bytes ? "base64" : undefined };
    const { result } = await this.http.json<ExecInfo>({ ...this.call("POST", "/wait", query), safe: true, signal: options.signal });
    return result && bytes ? bytesResult(result) : result;
  }

  /** Follows its output, from the beginning or an offset. Leaving does nothing to it. */
  attach(options: { offset?: Offset; encoding: "bytes"; signal?: AbortSignal }): CommandStream<Uint8Array>;
  attach(options?: { offset?: Offset; encoding?: "text"; signal?: AbortSignal }): CommandStream;
  attach(options: { offset?: Offset; encoding?: BytesOptions["encoding"] | "text"; signal?: AbortSignal } = {}): CommandStream<never> {
    const { offset = {}, encoding, signal } = options;
    const query = { offset: `${offset.stdout ?? 0}-${offset.stderr ?? 0}`, encoding: encoding === "bytes" ? "base64" : undefined };
    return new CommandStream<never>(this.http, this.box, { ...this.call("GET", "/output", query), signal });
  }

  /** What it has written so far, from an offset on, as far as the server still has it. */
  async output(stream: "stdout" | "stderr", offset = 0): Promise<Uint8Array> {
    const call = this.call("GET", "/output", { stream, offset });
    const response = await this.http.send(call);
    return this.http.reading(async () => new Uint8Array(await response.arrayBuffer()), call);
  }

  /** Writes to its input. */
  async write(data: Data): Promise<void> {
    await this.http.done({ ...this.call("POST", "/stdin"), body: await bodyOf(data) });
  }

  /** Ends its input. */
  async closeStdin(): Promise<void> {
    await this.http.done({ ...this.call("POST", "/stdin", { eof: true }), body: "" });
  }

  /** Sends a signal, such as "TERM" or 15; with tree to all that it started, too. */
  async signal(signal: string | number, options: { tree?: boolean } = {}): Promise<void> {
    await this.http.done({ ...this.call("POST", "/signal"), json: { signal, tree: options.tree } });
  }

  /** Ends it and all that it started. */
  async kill(): Promise<void> {
    await this.signal("KILL", { tree: true });
  }

  /** Sets the size of its terminal. */
  async resize(cols: number, rows: number): Promise<void> {
    await this.http.done({ ...this.call("POST", "/resize"), json: { cols, rows } });
  }

  private call(method: Call["method"], path: string, query?: Query): Call {
    return { method, path: `/sandboxes/${segment(this.box)}/execs/${segment(this.execId)}${path}`, query };
  }
}
