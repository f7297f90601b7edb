import { bodyOf, counted, type Data, joined, type Progress, wholeArchive } from "./bytes.js";
import { InvalidArgument, NotFound, SandboxGone, TooLarge } from "./errors.js";
import { type Call, type Http, Pages, type Query, segment } from "./http.js";
import { fromApi } from "./names.js";
import type { Copied, FileInfo, FoundFiles, FoundLines } from "./types.js";

/** How many bytes of a file read() keeps in memory. */
const mostRead = 256 << 20;

/** Whose rights hold. */
export interface AsUser {
  /** Default: the sandbox's user. */
  user?: string;
}

/** How a file is read. */
export interface ReadOptions extends AsUser {
  /** Where to begin, in bytes. Default: 0. */
  offset?: number;
  /** How many bytes at most. Default: all. */
  length?: number;
  onProgress?: Progress;
  signal?: AbortSignal;
}

/** How a file is written. */
export interface WriteOptions extends AsUser {
  /** Permissions, octal. Default: those of the file, 644 for a new one. */
  mode?: string;
  /** Write at the end. */
  append?: boolean;
  /** user, user:group or :group. */
  owner?: string;
  /** In browsers a stream is read before anything of it is sent, and this tells of the reading. */
  onProgress?: Progress;
  signal?: AbortSignal;
}

/** What a search for names leaves out, and how far it goes. */
export interface GlobOptions extends AsUser {
  /** Where to begin. Default: the sandbox's directory. */
  path?: string;
  exclude?: string[];
  limit?: number;
  /** Seconds. */
  timeout?: number;
}

/** What a search for lines looks at, and how. */
export interface SearchOptions extends GlobOptions {
  /** The pattern is a text, no regular expression. */
  literal?: boolean;
  ignoreCase?: boolean;
  /** Only files whose names match. */
  include?: string[];
  /** Lines around each. */
  context?: number;
  limitPerFile?: number;
}

/** A change below a directory that is watched. */
export interface WatchEvent {
  type: "ready" | "create" | "write" | "remove" | "rename" | "chmod" | "overflow" | "end";
  path?: string;
  name?: string;
  file?: FileInfo;
}

const watchTypes = new Set(["ready", "create", "write", "remove", "rename", "chmod", "overflow", "end"]);

/** The files of a sandbox. Relative paths begin at the sandbox's directory. */
export class Files {
  private readonly base: string;

  constructor(
    private readonly http: Http,
    box: string,
  ) {
    this.base = `/sandboxes/${segment(box)}/files`;
  }

  /** The bytes of a file, which has at most 256 MiB: a sandbox can have one of any size. */
  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const stream = await this.readStream(path, options);
    const bytes = await this.http.reading(() => joined(stream, mostRead), this.readCall(path, options));
    if (!bytes) {
      throw new TooLarge(`${path} has more than ${mostRead} bytes: use readStream`, { code: "too_large", field: "path" });
    }
    return bytes;
  }

  /** The text of a file. One that is not UTF-8 is an error: nothing in it is replaced. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    const bytes = await this.read(path, options);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (cause) {
      throw new InvalidArgument(`${path} is not valid UTF-8 text: read() gives its bytes`, { code: "not_text", field: "path" }, { cause });
    }
  }

  /** The bytes of a file of any size, as they come. Cancel the stream if you don't read it to its end. */
  async readStream(path: string, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    if (options.length === 0) {
      return new Blob([]).stream();
    }
    const response = await this.http.send(this.readCall(path, options));
    const size = response.headers.get("Content-Length");
    return counted(response.body ?? new Blob([]).stream(), size === null ? undefined : Number(size), options.onProgress);
  }

  /** Writes a file: a text as UTF-8, bytes, or a stream of them. Missing directories are made. It changes as a whole or not at all, but for append. */
  async write(path: string, data: Data, options: WriteOptions = {}): Promise<void> {
    const { onProgress, signal, ...query } = options;
    await this.http.done({ method: "PUT", path: this.base, query: { path, ...query }, body: await bodyOf(data, onProgress), signal });
  }

  /** What a directory has in it; with depth also what is below. */
  list(path = ".", options: AsUser & { depth?: number } = {}): Pages<FileInfo> {
    return new Pages<FileInfo>(this.http, this.get("/list", { path, ...options }));
  }

  /** What a file is; of a link the link itself, unless it is followed. */
  stat(path: string, options: AsUser & { follow?: boolean } = {}): Promise<FileInfo> {
    return this.http.json<FileInfo>(this.get("/stat", { path, ...options }));
  }

  /** Whether there is a file, directory or link of that name. That there is no such sandbox is an error. */
  async exists(path: string, options: AsUser = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof NotFound && !isOfSandbox(error)) {
        return false;
      }
      throw error;
    }
  }

  /** Makes a directory. */
  async mkdir(path: string, options: AsUser & { mode?: string; parents?: boolean; owner?: string } = {}): Promise<void> {
    await this.http.done(this.post("/mkdir", { path, ...options }));
  }

  /** Removes a file, or with recursive a directory with what is in it. */
  async remove(path: string, options: AsUser & { recursive?: boolean } = {}): Promise<void> {
    await this.http.done({ method: "DELETE", path: this.base, query: { path, ...options } });
  }

  /** Gives a file another name. */
  async move(from: string, to: string, options: AsUser & { overwrite?: boolean } = {}): Promise<void> {
    await this.http.done(this.post("/move", { from, to, ...options }));
  }

  copy(from: string, to: string, options: AsUser & { recursive?: boolean; overwrite?: boolean } = {}): Promise<Copied> {
    return this.http.json<Copied>(this.post("/copy", { from, to, ...options }));
  }

  /** Sets permissions, in octal digits. The answer is how many files were changed. */
  async chmod(path: string, mode: string, options: AsUser & { recursive?: boolean } = {}): Promise<number> {
    return (await this.http.json<{ changed: number }>(this.post("/chmod", { path, mode, ...options }))).changed;
  }

  /** Sets the owner: user, user:group or :group. */
  async chown(path: string, owner: string, options: AsUser & { recursive?: boolean } = {}): Promise<number> {
    return (await this.http.json<{ changed: number }>(this.post("/chown", { path, owner, ...options }))).changed;
  }

  /** Makes a link at path that leads to target. */
  async symlink(path: string, target: string, options: AsUser & { overwrite?: boolean } = {}): Promise<void> {
    await this.http.done(this.post("/symlink", { path, target, ...options }));
  }

  /** Finds files by their names. */
  glob(pattern: string, options: GlobOptions = {}): Promise<FoundFiles> {
    return this.http.json<FoundFiles>(this.get("/glob", { pattern, ...options }));
  }

  /** Finds lines by what is in them: a regular expression of Go's. */
  search(pattern: string, options: SearchOptions = {}): Promise<FoundLines> {
    const { ignoreCase, limitPerFile, ...rest } = options;
    return this.http.json<FoundLines>(this.get("/search", { pattern, ...rest, ignore_case: ignoreCase, limit_per_file: limitPerFile }));
  }

  /** Tells of changes until you leave the loop or the directory is gone. Changes count from the event ready on. */
  async *watch(path = ".", options: AsUser & { recursive?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<WatchEvent, void, undefined> {
    const { signal, ...query } = options;
    const call: Call = { ...this.get("/watch", { path, ...query }), signal };
    for await (const event of this.http.events(call)) {
      if (watchTypes.has(event.name)) {
        yield { ...fromApi<Omit<WatchEvent, "type">>(JSON.parse(event.data)), type: event.name as WatchEvent["type"] };
      }
    }
  }

  /** A directory as a tar, or with gzip as a tar.gz. A tar that does not come whole ends with a ConnectionError. */
  async readArchive(path = ".", options: AsUser & { exclude?: string[]; gzip?: boolean; signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    const { gzip, signal, ...query } = options;
    const response = await this.http.send({ ...this.get("/archive", { path, ...query }), headers: { Accept: archiveType(gzip) }, signal });
    return wholeArchive(response.body ?? new Blob([]).stream(), gzip);
  }

  /** Unpacks a tar, or with gzip a tar.gz, into a directory. */
  async writeArchive(path: string, data: Data, options: AsUser & { gzip?: boolean; onProgress?: Progress; signal?: AbortSignal } = {}): Promise<void> {
    const { gzip, onProgress, signal, ...query } = options;
    const headers = { "Content-Type": archiveType(gzip) };
    await this.http.done({ method: "PUT", path: `${this.base}/archive`, query: { path, ...query }, headers, body: await bodyOf(data, onProgress), signal });
  }

  private readCall(path: string, options: ReadOptions): Call {
    const { offset = 0, length, user, signal } = options;
    const headers: Record<string, string> = {};
    if (offset > 0 || length !== undefined) {
      headers.Range = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`;
    }
    return { method: "GET", path: this.base, query: { path, user }, headers, signal };
  }

  private get(path: string, query: Query): Call {
    return { method: "GET", path: this.base + path, query };
  }

  private post(path: string, json: object): Call {
    return { method: "POST", path: this.base + path, json };
  }
}

/** Whether it is the sandbox that is not there, and nothing in it. */
function isOfSandbox(error: NotFound): boolean {
  return error instanceof SandboxGone || error.message === "Sandbox not found";
}

/** The content type of an archive. */
export function archiveType(gzip: boolean | undefined): string {
  return gzip ? "application/gzip" : "application/x-tar";
}
