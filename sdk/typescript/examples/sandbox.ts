// The class Sandbox, by gRPC-Web: a sandbox from its beginning to its end.
import { Sandbox } from "@agentbox/client";

const sandbox = new Sandbox("http://localhost:50051");

const session = await sandbox.create();
try {
  console.log("session", session.sessionId);
  console.log("container", session.containerId);
  console.log("hosts", sandbox.allowedHosts.length);

  const version = await sandbox.exec("python3 --version");
  console.log("version", version.exitCode, version.stdout.trim());

  await sandbox.writeFile("hello.py", "print('Hello from script!')\n");
  console.log("read", (await sandbox.readFile("hello.py")).trim());
  console.log("ran", (await sandbox.exec("python3 hello.py")).stdout.trim());
  console.log("kernel", (await sandbox.exec("uname -r")).stdout.trim());

  for await (const message of sandbox.execStream("echo streamed")) {
    console.log(message.type, message.data.trim(), message.exitCode ?? "");
  }
} finally {
  console.log("destroyed", await sandbox.destroy());
}
