// What a client of sandbox.v1 without a key does, by gRPC over HTTP/2, with `agentbox serve --no-auth`.
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { SandboxService } from "@agentbox/client";

const transport = createGrpcTransport({
  baseUrl: "http://localhost:50051",
});
const client = createClient(SandboxService, transport);

async function main() {
  const { session } = await client.createSession({});
  const sessionId = session!.sessionId;
  console.log("session", sessionId);
  console.log("container", session!.containerId);
  console.log("hosts", session!.allowedHosts.length);

  const run = (command: string) => client.exec({ sessionId, command, timeout: 30, workdir: "/workspace" });
  const version = await run("python3 --version");
  console.log("version", version.exitCode, version.stdout.trim());

  const written = await client.writeFile({ sessionId, path: "hello.py", content: "print('Hello from script!')\n", mode: "w" });
  console.log("written", written.success);
  const read = await client.readFile({ sessionId, path: "hello.py" });
  console.log("read", read.content!.trim());
  console.log("ran", (await run("python3 hello.py")).stdout.trim());
  console.log("kernel", (await run("uname -r")).stdout.trim());

  for await (const message of client.execStream({ sessionId, command: "echo streamed", workdir: "/workspace" })) {
    console.log(message.type, message.data.trim(), message.exitCode ?? "");
  }

  const { sessions } = await client.listSessions({});
  console.log("listed", sessions.some((one) => one.sessionId === sessionId));
  const gone = await client.destroySession({ sessionId });
  console.log("destroyed", gone.success);
}

await main();
