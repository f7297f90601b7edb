import { chunksOf, textOf } from "./bytes.js";
import { AgentboxError, ConnectionError, errorOfEvent, errorOfResponse, Internal, InvalidArgument } from "./errors.js";
import { fromApi, toApi } from "./names.js";
import { platform } from "./platform/node.js";
import { readEvents, type ServerEvent } from "./sse.js";

/** How a client reaches its server. */
export interface ClientOptions {
  /** Default: AGENTBOX_URL of the environment, else http://127.0.0.1:8700. */
  url?: string;
  /** Default: AGENTBOX_API_KEY of the environment; a server with --no-auth needs none. */
  apiKey?: string;
  /** Sends the requests, instead of the platform's own fetch. */
  fetch?: typeof globalThis.fetch;
  /** How often a request is sent again that can't do a thing twice. Default: 3. */
  retries?: number;
}

type Value = string | number | boolean | undefined;
export type Query = Record<string, Value | readonly string[]>;

/** One call of the API. */
export interface Call {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below /api/v1. */
  path: string;
  query?: Query;
  /** Sent as JSON, in the API's names. */
  json?: unknown;
  /** Sent as it is, once. */
  body?: BodyInit;
  headers?: Record<string, string>;
  /** Makes the call one that is done once however often it is sent. */
  key?: string;
  /** It changes nothing, though it is no GET. */
  safe?: boolean;
  signal?: AbortSignal;
}

/** How long an answer to a question may take to begin, in ms. What changes something may take as long as it takes. */
const answerTimeout = 60_000;
/** The longest that a server may have a request wait before it is sent again, in seconds. */
const maxWait = 10;

/** The largest answer in JSON, in bytes: no text of JavaScript has more. */
const maxAnswer = 512 << 20;

/** A part of a path. What would make another path of it names nothing. */
export function segment(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new InvalidArgument(`"${text}" names nothing on the server`);
  }
  return encodeURIComponent(text);
}

/** Sends requests to one server. */
export class Http {
  readonly url: string;
  private readonly key: string | undefined;
  private readonly fetch: typeof globalThis.fetch;
  private readonly retries: number;

  constructor(options: ClientOptions) {
    this.url = (options.url || platform.env("AGENTBOX_URL") || "http://127.0.0.1:8700").replace(/\/+$/, "");
    this.key = options.apiKey ?? platform.env("AGENTBOX_API_KEY");
    this.fetch = options.fetch ?? platform.fetch;
    this.retries = options.retries ?? 3;
  }

  /** The answer's JSON, in TypeScript's names. */
  async json<T>(call: Call): Promise<T> {
    const response = await this.send(call);
    const text = await this.reading(() => textOf(response, maxAnswer), call);
    if (text === undefined) {
      throw new Internal(`the server's answer has more than ${maxAnswer} bytes`, { status: response.status });
    }
    return this.reading(async () => answered<T>(text), call);
  }

  /** For calls whose answer says nothing. */
  async done(call: Call): Promise<void> {
    const response = await this.send(call);
    await response.body?.cancel();
  }

  /** The answer, which is no error. It is sent again where that can't do a thing twice. */
  async send(call: Call): Promise<Response> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.once(call);
      } catch (error) {
        const wait = this.again(call, error, tries);
        if (wait === undefined) {
          throw error;
        }
        await sleep(wait, call.signal);
      }
    }
  }

  /** The events of an answer, until the caller leaves the loop or the server ends it. */
  async *events(call: Call): AsyncGenerator<ServerEvent, void, undefined> {
    const response = await this.send({ ...call, headers: { ...call.headers, Accept: "text/event-stream" } });
    const events = readEvents(chunksOf(response.body ?? new Blob([]).stream()));
    try {
      for (;;) {
        const { done, value } = await this.reading(() => events.next(), call);
        if (done) {
          return;
        }
        if (value.name === "error") {
          throw errorOfEvent(value.data);
        }
        yield value;
      }
    } finally {
      await events.return();
    }
  }

  /** Runs what reads an answer; a connection that breaks is a ConnectionError. */
  async reading<T>(read: () => Promise<T>, call: Pick<Call, "method" | "path" | "signal">): Promise<T> {
    try {
      return await read();
    } catch (error) {
      throw this.lost(error, call);
    }
  }

  /** A key for a call that is to be done once. */
  unique(): string {
    return platform.unique();
  }

  /** Opens a WebSocket below /api/v1. */
  webSocket(path: string, query: Query): WebSocket {
    return platform.webSocket(this.address(path, query).replace(/^http/, "ws"), this.key);
  }

  private async once(call: Call): Promise<Response> {
    const headers: Record<string, string> = { ...call.headers };
    if (this.key) {
      headers.Authorization = `Bearer ${this.key}`;
    }
    if (call.key) {
      headers["Idempotency-Key"] = call.key;
    }
    let body = call.body;
    if (call.json !== undefined) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(toApi(call.json));
    }
    const init: RequestInit & { duplex?: "half" } = { method: call.method, headers, body, signal: call.signal };
    init.redirect = "manual"; // a key, and what is sent with it, is for one server
    if (body instanceof ReadableStream) {
      init.duplex = "half";
    }
    const response = await this.within(call, init);
    if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) {
      await response.body?.cancel();
      throw new Internal("the server leads to another address, where nothing is sent", { status: response.status });
    }
    if (!response.ok) {
      throw await errorOfResponse(response);
    }
    return response;
  }

  /** Fetches. A question whose answer does not begin in time is given up, unless the caller has a signal of its own. */
  private async within(call: Call, init: RequestInit): Promise<Response> {
    const late = new AbortController();
    const bounded = call.method === "GET" && !call.signal;
    const timer = bounded ? setTimeout(() => late.abort(new Error("it did not answer in time")), answerTimeout) : undefined;
    try {
      return await this.fetch(this.address(call.path, call.query), bounded ? { ...init, signal: late.signal } : init);
    } catch (error) {
      throw this.lost(late.signal.aborted ? late.signal.reason : error, call);
    } finally {
      clearTimeout(timer);
    }
  }

  private address(path: string, query: Query = {}): string {
    const values = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) {
          values.append(name, String(one));
        }
      }
    }
    const text = values.toString();
    return `${this.url}/api/v1${path}${text ? `?${text}` : ""}`;
  }

  /** In how many ms a call that failed is to be sent again; undefined: not. */
  private again(call: Call, error: unknown, tries: number): number | undefined {
    const safe = call.method === "GET" || call.method === "HEAD" || call.safe || Boolean(call.key);
    if (!safe || call.body !== undefined || tries >= this.retries || !(error instanceof AgentboxError)) {
      return undefined;
    }
    const wait = error.retryAfter ?? 0;
    const passes = error instanceof ConnectionError || error.code === "unavailable" || error.code === "rate_limited";
    return passes && wait <= maxWait ? Math.max(wait * 1000, 100 << tries) : undefined;
  }

  private lost(error: unknown, call: Pick<Call, "method" | "path" | "signal">): unknown {
    if (call.signal?.aborted || error instanceof AgentboxError || error instanceof RangeError) {
      return error;
    }
    return new ConnectionError(`${call.method} ${this.url}/api/v1${call.path}: ${reasonOf(error)}`, {}, { cause: error });
  }
}

/** Why a request got no answer; fetch itself only says that it failed. */
export function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message : String(cause);
}

/** What an answer says. One that is nested too deeply to be read says nothing. */
function answered<T>(text: string): T {
  try {
    return fromApi<T>(JSON.parse(text));
  } catch (error) {
    throw error instanceof RangeError ? new Internal("the server's answer is nested too deeply", {}, { cause: error }) : error;
  }
}

/** Waits; a signal ends it with its reason. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const leave = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", leave);
      resolve();
    }, ms);
    signal?.addEventListener("abort", leave, { once: true });
  });
}

interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** A list that comes in pages. It asks for each when it is needed. */
export class Pages<T> implements AsyncIterable<T> {
  constructor(
    private readonly http: Http,
    private readonly call: Call,
    private readonly made: (item: never) => T = (item) => item,
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.http.json<Page<never>>({ ...this.call, query: { limit: 1000, ...this.call.query, cursor } });
      if (!Array.isArray(page?.items) || (page.nextCursor && page.nextCursor === cursor)) {
        throw new Internal("the server's answer is no page of a list"); // one that leads to itself would never end
      }
      for (const item of page.items) {
        yield this.made(item);
      }
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** All of it. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) {
      items.push(item);
    }
    return items;
  }
}
