// A page that uses sandboxes: bundle it (npx esbuild --bundle --format=esm page.ts) and start
// the server with --allow-origin and the page's origin. Whoever opens the page has its key.
import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";

import { Client, Sandbox, SandboxService } from "@agentbox/client";

/** Where the page's server is. */
export interface Server {
  url: string;
  apiKey?: string;
}

/** The class Sandbox, by gRPC-Web. */
export async function sandbox({ url, apiKey }: Server): Promise<object> {
  const sandbox = new Sandbox(url, { apiKey });
  await sandbox.create({ allowedHosts: ["localhost"] });
  try {
    const { stdout, exitCode } = await sandbox.exec("echo hello; exit 3");
    const streamed: string[] = [];
    for await (const message of sandbox.execStream("echo one; until [ -e go ]; do sleep 0.05; done; echo two")) {
      streamed.push(`${message.type} ${message.data}`);
      if (message.data === "one\n") {
        await sandbox.writeFile("go", "ü"); // while the stream goes on
      }
    }
    const read = await sandbox.readFile("go");
    const python = (await sandbox.runPython("print(6*7)")).stdout;
    return { stdout, exitCode, streamed, read, python, destroyed: await sandbox.destroy() };
  } finally {
    await sandbox.destroy();
  }
}

/** The generated service, by a transport of connect-web. */
export async function service({ url, apiKey }: Server): Promise<object> {
  const transport = createGrpcWebTransport({ baseUrl: url });
  const headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : undefined;
  const client = createClient(SandboxService, transport);
  const { session } = await client.createSession({ allowedHosts: ["localhost"] }, { headers });
  const sessionId = session!.sessionId;
  const { stdout } = await client.exec({ sessionId, command: "echo hi" }, { headers });
  const listed = (await client.listSessions({}, { headers })).sessions.some((one) => one.sessionId === sessionId);
  const { success } = await client.destroySession({ sessionId }, { headers });
  return { stdout, listed, success };
}

/** The native client, with a terminal by WebSocket. */
export async function native({ url, apiKey }: Server): Promise<object> {
  const client = new Client({ url, apiKey });
  const box = await client.create();
  try {
    const { stdout, exitCode } = await box.exec("echo hello; exit 3");
    const streamed: string[] = [];
    for await (const event of box.stream("echo one; until [ -e go ]; do sleep 0.05; done; echo two")) {
      streamed.push(event.type);
      if (event.type === "stdout" && event.data === "one\n") {
        await box.files.write("go", new Uint8Array([0, 255]));
      }
    }
    const read = [...(await box.files.read("go"))];
    const told: number[] = [];
    await box.files.write("stream", new Blob(["a", "b"]).stream(), { onProgress: (done) => told.push(done) });
    const process = await box.background("cat", { openStdin: true });
    await process.write("typed");
    await process.closeStdin();
    const typed = (await process.wait())?.stdout;
    const missing = await box.files.read("none").catch((error: Error) => error.name);
    return { stdout, exitCode, streamed, read, told: told.at(-1), typed, missing, shown: await terminal(box) };
  } finally {
    await box.destroy();
  }
}

async function terminal(box: Awaited<ReturnType<Client["create"]>>): Promise<string> {
  const terminal = await box.terminal({ command: "read x; echo got $x; exit 7" });
  await terminal.write("abc\n");
  let shown = "";
  for await (const bytes of terminal) {
    shown += new TextDecoder().decode(bytes);
  }
  return `${shown.split("\r\n").at(-2)} ${terminal.result?.exitCode}`;
}

Object.assign(globalThis, { sandbox, service, native });
