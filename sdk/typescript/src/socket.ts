import { ConnectionError, NotRunning } from "./errors.js";
import { type Http, type Query, segment, sleep } from "./http.js";
import type { SandboxInfo } from "./types.js";

/** The most bytes of one message: servers take 1 MiB. */
const maxMessage = 512 << 10;
/** How much may wait to be sent before a writer waits, in bytes, and how often it looks, in ms. */
const maxQueued = 1 << 20;
const lookEvery = 5;

/** How much may wait to be read, in bytes: nothing holds a WebSocket's sender back. */
const maxUnread = 256 << 20;

/** The code of a WebSocket that is closed in order. */
const normal = 1000;

/** A WebSocket of a sandbox. Its messages are read once, in order; those that nobody reads are kept in memory, up to 256 MiB: with more it breaks. */
export class Socket {
  private readonly queue: (Uint8Array | string)[] = [];
  private wake: () => void = () => undefined;
  private over = false;
  private unread = 0;
  /** Whether it was closed in another way than in order. */
  broken = false;

  private constructor(private readonly socket: WebSocket) {
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      const message = typeof data === "string" ? data : new Uint8Array(data);
      this.unread += sizeOf(message);
      if (this.unread > maxUnread) {
        socket.onmessage = null;
        socket.close();
        this.end(false);
        return;
      }
      this.queue.push(message);
      this.wake();
    };
    socket.onclose = ({ code }: CloseEvent) => this.end(code === normal);
  }

  private end(inOrder: boolean): void {
    if (!this.over) {
      this.over = true;
      this.broken = !inOrder;
      this.wake();
    }
  }

  /** Opens one below a sandbox. */
  static async open(http: Http, box: string, path: string, query: Query): Promise<Socket> {
    const at = `/sandboxes/${segment(box)}${path}`;
    const socket = new Socket(http.webSocket(at, query));
    const opened = await new Promise<boolean>((resolve) => {
      socket.socket.onopen = () => resolve(true);
      socket.socket.onerror = () => resolve(false);
    });
    socket.socket.onerror = null; // a close comes behind it
    if (!opened) {
      throw await whyNot(http, box, at);
    }
    return socket;
  }

  /** The next message; undefined: it is closed. */
  async next(): Promise<Uint8Array | string | undefined> {
    while (this.queue.length === 0 && !this.over) {
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    const message = this.queue.shift();
    this.unread -= message === undefined ? 0 : sizeOf(message);
    return message;
  }

  /** Sends a control message. */
  control(message: object): void {
    this.socket.send(JSON.stringify(message));
  }

  /** Sends bytes; it waits while too many wait to be sent. */
  async write(data: Uint8Array): Promise<void> {
    for (let at = 0; at < data.length; at += maxMessage) {
      while (this.socket.bufferedAmount > maxQueued && !this.over) {
        await sleep(lookEvery);
      }
      if (this.over) {
        throw new ConnectionError("the connection is closed");
      }
      this.socket.send(data.slice(at, at + maxMessage));
    }
  }

  close(): void {
    this.socket.close(normal);
  }
}

/** Bytes of a message, and something for keeping it: an empty one takes memory, too. */
function sizeOf(message: Uint8Array | string): number {
  return message.length + 100;
}

/** Why a WebSocket can't be opened, which WebSockets do not tell. */
async function whyNot(http: Http, box: string, at: string): Promise<Error> {
  try {
    const { status } = await http.json<SandboxInfo>({ method: "GET", path: `/sandboxes/${segment(box)}` });
    if (status !== "running") {
      return new NotRunning("Sandbox is not running", { status: 409, code: "not_running" });
    }
    return new ConnectionError(`the server opens no WebSocket at ${at}`);
  } catch (error) {
    return error as Error;
  }
}
