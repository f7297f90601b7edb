/// <reference lib="esnext.disposable" preserve="true" />
import { Conflict, ConnectionError } from "./errors.js";
import { type Http, segment } from "./http.js";
import { Socket } from "./socket.js";
import type { ListeningPort } from "./types.js";

/** One TCP connection to a port of a sandbox. */
export class PortConnection implements AsyncDisposable {
  /** What comes from the sandbox. It ends when the server there has ended its direction. */
  readonly readable: ReadableStream<Uint8Array>;
  /** What goes there. Closing it ends this direction only. */
  readonly writable: WritableStream<Uint8Array>;

  private constructor(private readonly socket: Socket) {
    this.readable = new ReadableStream<Uint8Array>({
      async pull(to) {
        for (;;) {
          const message = await socket.next();
          if (message === undefined) {
            return socket.broken ? to.error(new ConnectionError("the connection broke")) : to.close();
          }
          if (typeof message !== "string" && message.length > 0) {
            return to.enqueue(message); // texts are of a later version
          }
        }
      },
      cancel: () => socket.close(),
    });
    this.writable = new WritableStream<Uint8Array>({
      write: (chunk) => socket.write(chunk),
      close: () => socket.control({ type: "eof" }),
      abort: () => socket.close(),
    });
  }

  /** Opens one. */
  static async open(http: Http, box: string, port: number): Promise<PortConnection> {
    try {
      return new PortConnection(await Socket.open(http, box, `/ports/${port}/connect`, {}));
    } catch (error) {
      throw error instanceof ConnectionError ? await nobodyThere(http, box, port, error) : error;
    }
  }

  /** Ends both directions. */
  close(): void {
    this.socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** The error for a port on which nothing listens, which WebSockets do not tell; else the one that there is. */
async function nobodyThere(http: Http, box: string, port: number, error: Error): Promise<Error> {
  const { items } = await http.json<{ items: ListeningPort[] }>({ method: "GET", path: `/sandboxes/${segment(box)}/ports` });
  const there = items.some((one) => one.port === port);
  return there ? error : new Conflict(`nothing listens on port ${port}`, { status: 409, code: "conflict" });
}
