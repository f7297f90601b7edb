import { chunksOf, fromBase64, toBase64 } from "./bytes.js";
import { AgentboxError, ConnectionError, errorOfEvent } from "./errors.js";
import { type Call, type Http, segment, sleep } from "./http.js";
import { fromApi } from "./names.js";
import { platform } from "./platform/node.js";
import { readEvents, type ServerEvent } from "./sse.js";
import type { CommandRequest, ExecResult } from "./types.js";

/** How a command runs. */
export interface CommandOptions extends Omit<CommandRequest, "command" | "stdin" | "stdinBase64" | "detach" | "openStdin"> {
  /** Its input; more than 16 MiB go to a {@link Process}. */
  stdin?: string | Uint8Array;
  /** How output is given: as texts with U+FFFD in place of bytes that are no UTF-8, or as the bytes that it is. Default: text. */
  encoding?: "text" | "bytes";
  /** Tells requests apart that are sent again. Default: one that nobody else has. An empty one: it is sent once. */
  idempotencyKey?: string;
  /** Ends the call. What becomes of the command then says onDisconnect. */
  signal?: AbortSignal;
}

/** {@link CommandOptions} for output as bytes. */
export type BytesOptions = CommandOptions & { encoding: "bytes" };

/** A command line for the shell, or a program and its arguments. */
export type CommandLine = string | readonly string[];

/** How a command ended, and its output. */
export type Result<T = string> = Omit<ExecResult, "output" | "stdout" | "stderr"> & {
  /** stdout and stderr in the order of arrival. */
  output: T;
  stdout: T;
  stderr: T;
};

/** How a command ended, without its output. */
export type ExecEnd = Omit<ExecResult, "output" | "stdout" | "stderr">;

/** One thing that a command did. */
export type CommandEvent<T = string> =
  | { type: "start"; execId: string }
  | { type: "stdout" | "stderr"; data: T; /** Of data in the stream, in bytes. */ offset: number }
  | { type: "exit"; result: ExecEnd };

/** The body of a request to run a command. */
export function commandBody(command: CommandLine, options: CommandOptions, more: object = {}): object {
  const { stdin, encoding: _, idempotencyKey: __, signal: ___, ...rest } = options;
  const input = stdin instanceof Uint8Array ? { stdinBase64: toBase64(stdin) } : { stdin };
  return { ...rest, ...input, ...more, command };
}

/** The call that runs a command. */
export function commandCall(path: string, command: CommandLine, options: CommandOptions, more: object = {}): Call {
  return {
    method: "POST",
    path,
    query: { encoding: options.encoding === "bytes" ? "base64" : undefined },
    json: commandBody(command, options, more),
    key: options.idempotencyKey ?? platform.unique(),
    signal: options.signal,
  };
}

/** A result whose output is bytes, of one in base64. */
export function bytesResult(result: Result): Result<Uint8Array> {
  return { ...result, output: fromBase64(result.output), stdout: fromBase64(result.stdout), stderr: fromBase64(result.stderr) };
}

/** How long a server that went away may take to come back, and how often it is asked, in ms. */
const backWithin = 30_000;
const backEvery = 200;
/** How long a stream may say nothing, in ms: servers do every 15 s. */
const silence = 60_000;

/**
 * What a command does, while it does it. Iterate over it once. Whoever leaves the loop
 * leaves the command, and onDisconnect says what becomes of it. When the server goes away
 * and comes back, the stream goes on where it was.
 */
export class CommandStream<T = string> implements AsyncIterable<CommandEvent<T>> {
  /** The command's id; empty until the event start. */
  execId = "";
  /** How it ended; undefined until the event exit. */
  result: ExecEnd | undefined;

  private lastId = "";
  private readonly left = new AbortController();

  constructor(
    private readonly http: Http,
    private readonly box: string,
    private readonly call: Call,
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<CommandEvent<T>, void, undefined> {
    const leave = () => this.left.abort(this.call.signal?.reason);
    this.call.signal?.throwIfAborted();
    this.call.signal?.addEventListener("abort", leave, { once: true });
    try {
      yield* this.all();
    } finally {
      this.call.signal?.removeEventListener("abort", leave);
      this.left.abort();
    }
  }

  private async *all(): AsyncGenerator<CommandEvent<T>, void, undefined> {
    let response = await this.open(this.call);
    for (;;) {
      try {
        for await (const event of this.events(response)) {
          const told = this.take(event);
          if (told) {
            yield told;
          }
          if (told?.type === "exit") {
            return;
          }
        }
        throw new ConnectionError("the stream of a command ended before the command did");
      } catch (error) {
        if (!this.goesOn(error)) {
          throw error;
        }
        response = await this.comeBack(error);
      }
    }
  }

  private open(call: Call): Promise<Response> {
    return this.http.send({ ...call, headers: { ...call.headers, Accept: "text/event-stream" }, signal: this.left.signal });
  }

  /** The events of an answer; one that is silent for too long is broken. */
  private async *events(response: Response): AsyncGenerator<ServerEvent, void, undefined> {
    if (!response.body) {
      return;
    }
    const chunks = chunksOf(response.body);
    try {
      yield* readEvents(this.spoken(chunks));
    } catch (error) {
      this.left.signal.throwIfAborted();
      throw error instanceof AgentboxError || error instanceof RangeError ? error : new ConnectionError("the stream of a command broke", {}, { cause: error });
    } finally {
      chunks.return().catch(() => undefined); // it may hang in a read
    }
  }

  private async *spoken(chunks: AsyncGenerator<Uint8Array, void, undefined>): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new ConnectionError("the stream of a command is silent")), silence);
      });
      const { done, value } = await Promise.race([chunks.next(), late]).finally(() => clearTimeout(timer));
      if (done) {
        return;
      }
      yield value;
    }
  }

  /** What an event tells. Those of a later version are passed over. */
  private take(event: ServerEvent): CommandEvent<T> | undefined {
    this.lastId = event.id || this.lastId;
    switch (event.name) {
      case "start":
        return this.started(String(dataOf(event).execId));
      case "stdout":
      case "stderr": {
        const { data, dataBase64, offset } = dataOf(event);
        const output = typeof dataBase64 === "string" ? fromBase64(dataBase64) : String(data);
        return { type: event.name, data: output as T, offset: Number(offset) };
      }
      case "exit":
        this.result = dataOf(event) as unknown as ExecEnd;
        return { type: "exit", result: this.result };
      case "error":
        throw errorOfEvent(event.data);
      default:
        return undefined;
    }
  }

  /** A stream that goes on says again which command it is. */
  private started(execId: string): CommandEvent<T> | undefined {
    const again = this.execId !== "";
    this.execId = execId;
    return again ? undefined : { type: "start", execId };
  }

  /** Whether the command may run on, without the stream. */
  private goesOn(error: unknown): boolean {
    if (this.execId === "" || this.left.signal.aborted || !(error instanceof AgentboxError)) {
      return false;
    }
    return error instanceof ConnectionError || (error.status === 0 && error.code === "unavailable");
  }

  /** Follows the command again, behind the last event that came. */
  private async comeBack(why: unknown): Promise<Response> {
    const call: Call = {
      method: "GET",
      path: `/sandboxes/${segment(this.box)}/execs/${segment(this.execId)}/output`,
      query: { encoding: this.call.query?.encoding, stream: this.call.query?.stream },
      headers: this.lastId ? { "Last-Event-ID": this.lastId } : {},
    };
    for (const end = Date.now() + backWithin; ; ) {
      try {
        return await this.open(call);
      } catch (error) {
        const away = error instanceof ConnectionError || (error instanceof AgentboxError && error.code === "unavailable");
        if (!away || Date.now() > end) {
          throw away ? why : error;
        }
      }
      await sleep(backEvery, this.left.signal);
    }
  }
}

function dataOf(event: ServerEvent): Record<string, unknown> {
  return fromApi<Record<string, unknown>>(JSON.parse(event.data));
}
