// Commands while they run: a stream, a command in the background that is followed from
// the middle, a terminal.
import { Client } from "@agentbox/client";

const client = new Client(); // AGENTBOX_URL, AGENTBOX_API_KEY
await using box = await client.create({ name: `streaming-${Date.now()}` });

const stream = box.stream("for i in 1 2 3; do echo line $i; sleep 0.2; done; exit 4");
for await (const event of stream) {
  if (event.type === "stdout" || event.type === "stderr") {
    process.stdout.write(event.data);
  }
}
console.log("it exited with", stream.result?.exitCode);

const worker = await box.background("while read line; do echo got $line; done", { openStdin: true });
await worker.write("one\ntwo\n");
await worker.closeStdin();
for await (const event of worker.attach({ offset: { stdout: "got one\n".length } })) {
  if (event.type === "stdout") {
    process.stdout.write(event.data); // got two
  }
}

const terminal = await box.terminal({ cols: 80, rows: 24, command: "stty size; read name; echo hello $name" });
await terminal.write("you\n");
for await (const bytes of terminal) {
  process.stdout.write(bytes);
}
console.log("done");
