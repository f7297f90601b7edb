import { type Client, Code, ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";

import {
  type ExecResponse,
  type ExecStreamResponse,
  SandboxService,
  type SessionInfo,
} from "./gen/sandbox/v1/sandbox_pb.js";
import { reasonOf } from "./http.js";
import { platform } from "./platform/node.js";

/** What a session is to be. */
export interface SandboxOptions {
  /** Your id for it: the session of that id if there is one. Default: a random one. */
  sessionId?: string;
  /** Whose storage it has, where the server keeps any. */
  tenantId?: string;
  /** The hosts that it may reach. Default, also of an empty list: the server's default hosts. */
  allowedHosts?: string[];
}

/** How a command runs. */
export interface ExecOptions {
  /** Seconds after which it is ended. Default: 30. */
  timeout?: number;
  /** Default: /workspace. */
  workdir?: string;
}

/** How a {@link Sandbox} reaches its server. */
export interface SandboxConnection {
  /** The server's API key. Default: AGENTBOX_API_KEY of the environment, where there is one. */
  apiKey?: string;
  /** Sends the requests, instead of the platform's own fetch. */
  fetch?: typeof globalThis.fetch;
  /** Carries the calls instead of gRPC-Web; baseUrl, apiKey and fetch are then its own affair. */
  transport?: Transport;
}

/** The hosts that pip needs; the server asks for both, too. */
const packageHosts = ["pypi.org", "files.pythonhosted.org"];

const script = "_temp_script.py";

/**
 * A session of the service sandbox.v1: one sandbox, made by {@link create}. It speaks
 * gRPC-Web, so it works in browsers, too. A failure that the service has no message
 * for is a ConnectError.
 */
export class Sandbox {
  /** The current session; null: there is none. */
  sessionId: string | null = null;

  private readonly client: Client<typeof SandboxService>;
  private hosts: string[] = [];

  constructor(baseUrl = "http://localhost:50051", connection: SandboxConnection = {}) {
    this.client = createClient(SandboxService, connection.transport ?? webTransport(baseUrl, connection));
  }

  /** The hosts that the session may reach. */
  get allowedHosts(): string[] {
    return [...this.hosts];
  }

  /** Whether there are any. */
  get networkEnabled(): boolean {
    return this.hosts.length > 0;
  }

  /** Makes a session, or takes up the one of options.sessionId. Commands can run when it returns. */
  async create(options: SandboxOptions = {}): Promise<SessionInfo> {
    const { session } = await this.client.createSession(options);
    if (!session) {
      throw new Error("The server sent no session.");
    }
    this.sessionId = session.sessionId;
    this.hosts = [...session.allowedHosts];
    return session;
  }

  /** Ends the session. False: there was none, or the server could not remove it yet. */
  async destroy(): Promise<boolean> {
    if (this.sessionId === null) {
      return false;
    }
    const { success } = await this.client.destroySession({ sessionId: this.sessionId });
    this.sessionId = null;
    this.hosts = [];
    return success;
  }

  /** Runs a command by /bin/sh -c and waits for its end. A command that fails is a result. */
  async exec(command: string, { timeout = 30, workdir = "/workspace" }: ExecOptions = {}): Promise<ExecResponse> {
    return this.client.exec({ sessionId: this.session(), command, timeout, workdir });
  }

  /** Runs a command and gives its output while it runs. Who leaves the loop ends the command. */
  async *execStream(command: string, workdir = "/workspace"): AsyncGenerator<ExecStreamResponse, void, undefined> {
    const sessionId = this.session();
    const left = new AbortController();
    try {
      yield* this.client.execStream({ sessionId, command, workdir }, { signal: left.signal });
    } finally {
      left.abort();
    }
  }

  /** Writes a text: "w" anew, "a" at the end of what is there. */
  async writeFile(path: string, content: string, mode: "w" | "a" = "w"): Promise<void> {
    const answer = await this.client.writeFile({ sessionId: this.session(), path, content, mode });
    if (!answer.success) {
      throw new Error(`Failed to write file: ${answer.error ?? ""}`);
    }
  }

  /** Reads a text. */
  async readFile(path: string): Promise<string> {
    const answer = await this.client.readFile({ sessionId: this.session(), path });
    if (!answer.success) {
      throw new Error(`Failed to read file: ${answer.error ?? ""}`);
    }
    return answer.content ?? "";
  }

  /** Installs Python packages. Both hosts of the package index must be among allowedHosts. */
  async pipInstall(packages: string[]): Promise<ExecResponse> {
    const sessionId = this.session();
    const missing = packageHosts.filter((host) => !this.hosts.includes(host));
    if (missing.length > 0) {
      throw new Error(`pip install requires ${missing.join(", ")} in allowedHosts`);
    }
    return this.client.pipInstall({ sessionId, packages });
  }

  /** Runs a Python program, from a file of the workspace that is removed whatever happens. */
  async runPython(code: string, timeout = 30): Promise<ExecResponse> {
    await this.writeFile(script, code);
    try {
      return await this.exec(`python3 ${script}`, { timeout });
    } finally {
      await this.exec(`rm -f ${script}`).catch(() => undefined); // what went wrong before is worth telling
    }
  }

  private session(): string {
    if (this.sessionId === null) {
      throw new Error("No active session. Call create() first.");
    }
    return this.sessionId;
  }
}

function webTransport(baseUrl: string, connection: SandboxConnection): Transport {
  const key = connection.apiKey ?? platform.env("AGENTBOX_API_KEY");
  const send = connection.fetch ?? platform.fetch;
  return createGrpcWebTransport({
    baseUrl,
    fetch: async (input, init) => {
      try {
        return await send(input, init);
      } catch (error) {
        if (init?.signal?.aborted) {
          throw error; // its caller did that
        }
        throw new ConnectError(`no connection to the server at ${baseUrl}: ${reasonOf(error)}`, Code.Unavailable, undefined, undefined, error);
      }
    },
    interceptors: key ? [bearer(key)] : [],
  });
}

/** Adds an API key to every call. */
export function bearer(key: string): Interceptor {
  return (next) => (request) => {
    request.header.set("Authorization", `Bearer ${key}`);
    return next(request);
  };
}
