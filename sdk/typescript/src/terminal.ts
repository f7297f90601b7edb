/// <reference lib="esnext.disposable" preserve="true" />
import type { ExecEnd } from "./commands.js";
import { ConnectionError, errorOfEvent } from "./errors.js";
import type { Http, Query } from "./http.js";
import { fromApi } from "./names.js";
import { Socket } from "./socket.js";

/** A terminal that is to be opened. */
export interface TerminalOptions {
  cols?: number;
  rows?: number;
  /** A command line. Default: a login shell. */
  command?: string;
  workdir?: string;
  user?: string;
  /** Let the command run on when its client is gone. */
  detach?: boolean;
}

/** A terminal that is there already. */
export interface TerminalAgain {
  execId: string;
  /** How many bytes of its output the client has. */
  offset?: number;
}

/** A command with a terminal. Iterate over what it shows, once. */
export class Terminal implements AsyncIterable<Uint8Array>, AsyncDisposable {
  /** The command's id. */
  execId = "";
  /** How it ended; undefined until the iteration is over. */
  result: ExecEnd | undefined;

  private constructor(private readonly socket: Socket) {}

  /** Opens one in a sandbox. */
  static async open(http: Http, box: string, options: TerminalOptions | TerminalAgain): Promise<Terminal> {
    const { execId, ...rest } = options as TerminalOptions & Partial<TerminalAgain>;
    const terminal = new Terminal(await Socket.open(http, box, "/terminal", { ...rest, exec_id: execId } as Query));
    const first = await terminal.socket.next(); // the server says first which command it is
    if (typeof first === "string") {
      terminal.take(first);
    }
    return terminal;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (let over = false; !over; ) {
      const message = await this.socket.next();
      if (message === undefined) {
        throw new ConnectionError("the terminal was closed before the command ended");
      }
      if (typeof message === "string") {
        over = this.take(message);
      } else {
        yield message;
      }
    }
  }

  /** Types. */
  async write(data: string | Uint8Array): Promise<void> {
    await this.socket.write(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  resize(cols: number, rows: number): void {
    this.socket.control({ type: "resize", cols, rows });
  }

  /** Sends a signal to the command, such as "INT" or 2. */
  signal(signal: string | number): void {
    this.socket.control({ type: "signal", signal });
  }

  /** Leaves. The command is ended after 5 s unless it was opened with detach, or is opened again. */
  close(): void {
    this.socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Reads a control message; true: it is the last. Those of a later version are passed over. */
  private take(text: string): boolean {
    const message = fromApi<Record<string, unknown>>(JSON.parse(text));
    switch (message.type) {
      case "start":
        this.execId = String(message.execId);
        return false;
      case "exit": {
        const { type: _, ...end } = message;
        this.result = end as unknown as ExecEnd;
        return true;
      }
      case "error":
        throw errorOfEvent(text);
      default:
        return false;
    }
  }
}
