import { ConnectionError } from "./errors.js";
import type { Http } from "./http.js";
import { Socket } from "./socket.js";

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
    return new PortConnection(await Socket.open(http, box, `/ports/${port}/connect`, {}));
  }

  /** Ends both directions. */
  close(): void {
    this.socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
