/// <reference lib="esnext.disposable" preserve="true" />
import {
  type BytesOptions,
  bytesResult,
  commandCall,
  type CommandLine,
  type CommandOptions,
  CommandStream,
  type Result,
} from "./commands.js";
import { NotFound } from "./errors.js";
import { Files } from "./files.js";
import { type Call, type Http, Pages, type Query, segment } from "./http.js";
import { fromApi } from "./names.js";
import { Network } from "./network.js";
import { Packages } from "./packages.js";
import { PortConnection } from "./ports.js";
import { Process } from "./process.js";
import { Sessions } from "./sessions.js";
import { Terminal, type TerminalAgain, type TerminalOptions } from "./terminal.js";
import type { Changes, ExecInfo, ExecResult, Isolation, ListeningPort, SandboxEvent, SandboxInfo, Stats } from "./types.js";

/** How a command runs in the background. */
export interface BackgroundOptions extends Omit<CommandOptions, "encoding"> {
  /** Leave its input open behind stdin, for Process.write. */
  openStdin?: boolean;
}

/** One sandbox. Leaving a block that has it by `await using` destroys it. */
export class Box implements AsyncDisposable {
  /** Its files. */
  readonly files: Files;
  /** What it may reach. */
  readonly network: Network;
  /** Installs packages in it. */
  readonly packages: Packages;
  /** Its shells that stay. */
  readonly sessions: Sessions;

  constructor(
    private readonly http: Http,
    /** What the server last said of it; refresh asks again. */
    public info: SandboxInfo,
  ) {
    this.files = new Files(http, info.id);
    this.network = new Network(http, info.id);
    this.packages = new Packages(http, info.id);
    this.sessions = new Sessions(http, info.id);
  }

  get id(): string {
    return this.info.id;
  }

  get shortId(): string {
    return this.info.shortId;
  }

  get name(): string | null {
    return this.info.name;
  }

  /** Its state, when the server was last asked. */
  get status(): SandboxInfo["status"] {
    return this.info.status;
  }

  /** Runs a command and waits for its end. A command that fails is a result. */
  async exec(command: CommandLine, options: BytesOptions): Promise<Result<Uint8Array>>;
  async exec(command: CommandLine, options?: CommandOptions): Promise<Result>;
  async exec(command: CommandLine, options: CommandOptions = {}): Promise<Result | Result<Uint8Array>> {
    const result = await this.http.json<ExecResult>(commandCall(`${this.path}/execute`, command, options));
    return options.encoding === "bytes" ? bytesResult(result) : result;
  }

  /** Runs a command and gives what it does while it does it. */
  stream(command: CommandLine, options: BytesOptions): CommandStream<Uint8Array>;
  stream(command: CommandLine, options?: CommandOptions): CommandStream;
  stream(command: CommandLine, options: CommandOptions = {}): CommandStream<never> {
    return new CommandStream<never>(this.http, this.id, commandCall(`${this.path}/execute/stream`, command, options));
  }

  /** Starts a command that runs on without its client. */
  async background(command: CommandLine, options: BackgroundOptions = {}): Promise<Process> {
    const { openStdin, ...rest } = options;
    const call = commandCall(`${this.path}/execute`, command, rest, { detach: true, openStdin });
    return this.process((await this.http.json<ExecResult>(call)).execId);
  }

  /** A command that was started before. */
  process(execId: string): Process {
    return new Process(this.http, this.id, execId);
  }

  /** The commands that run, and those that ended in the last hour. */
  processes(): Pages<ExecInfo> {
    return new Pages<ExecInfo>(this.http, this.call("GET", "/execs"));
  }

  /** Opens a terminal: a new one, or one that is there, by its execId. */
  terminal(options: TerminalOptions | TerminalAgain = {}): Promise<Terminal> {
    return Terminal.open(this.http, this.id, options);
  }

  /** The TCP ports on which something listens. */
  async ports(): Promise<ListeningPort[]> {
    return (await this.http.json<{ items: ListeningPort[] }>(this.call("GET", "/ports"))).items;
  }

  /** Connects to a port of its loopback interface. */
  connect(port: number): Promise<PortConnection> {
    return PortConnection.open(this.http, this.id, port);
  }

  /** What it uses now. */
  stats(): Promise<Stats> {
    return this.http.json<Stats>(this.call("GET", "/stats"));
  }

  /** What it uses, each second, until you leave the loop. */
  async *followStats(signal?: AbortSignal): AsyncGenerator<Stats, void, undefined> {
    for await (const event of this.http.events({ ...this.call("GET", "/stats", { stream: true }), signal })) {
      if (event.name === "stats") {
        yield fromApi<Stats>(JSON.parse(event.data));
      }
    }
  }

  /** What happened to it. */
  events(): Pages<SandboxEvent> {
    return new Pages<SandboxEvent>(this.http, this.call("GET", "/events"));
  }

  /** What happened and happens to it, until you leave the loop or it is gone. after: the seq of the last one that you have. */
  async *followEvents(options: { after?: number; signal?: AbortSignal } = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    const headers: Record<string, string> = options.after === undefined ? {} : { "Last-Event-ID": String(options.after) };
    const call: Call = { ...this.call("GET", "/events", { follow: true }), headers, signal: options.signal };
    for await (const event of this.http.events(call)) {
      const told = fromApi<Partial<SandboxEvent>>(JSON.parse(event.data));
      if (told.seq !== undefined) {
        yield told as SandboxEvent;
      }
    }
  }

  /** What isolates it. */
  isolation(): Promise<Isolation> {
    return this.http.json<Isolation>(this.call("GET", "/isolation"));
  }

  /** Asks for info again. */
  refresh(): Promise<SandboxInfo> {
    return this.told(this.call("GET", ""));
  }

  /** Changes labels, times and limits. */
  update(changes: Changes): Promise<SandboxInfo> {
    return this.told({ ...this.call("PATCH", ""), json: changes });
  }

  /** Ends its processes and keeps its files. */
  stop(): Promise<SandboxInfo> {
    return this.told(this.call("POST", "/stop"));
  }

  /** Runs it again, with the files that it had. */
  start(): Promise<SandboxInfo> {
    return this.told(this.call("POST", "/start"));
  }

  /** Ends it: its processes and files are gone. removeStorage: that of its tenant, too. */
  async destroy(options: { removeStorage?: boolean } = {}): Promise<void> {
    await this.http.done(this.call("DELETE", "", { remove_storage: options.removeStorage }));
  }

  /** Destroys it, unless that was done before. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.destroy();
    } catch (error) {
      if (!(error instanceof NotFound)) {
        throw error;
      }
    }
  }

  private async told(call: Call): Promise<SandboxInfo> {
    this.info = await this.http.json<SandboxInfo>(call);
    return this.info;
  }

  private get path(): string {
    return `/sandboxes/${segment(this.id)}`;
  }

  private call(method: Call["method"], path: string, query?: Query): Call {
    return { method, path: this.path + path, query };
  }
}
