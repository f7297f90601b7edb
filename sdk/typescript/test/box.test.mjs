// The native client against a real server.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { Client, Sandbox } from "@agentbox/client";
import { download, forward, upload } from "@agentbox/client/node";

import { keyed } from "./server.mjs";
import { until } from "./support.mjs";

const text = (bytes) => new TextDecoder().decode(bytes);
const all = async (events) => {
  const list = [];
  for await (const event of events) list.push(event);
  return list;
};
/** The first bytes of every PNG: no UTF-8. */
const png = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d]);

describe("the native client", keyed.needed, () => {
  const client = new Client({ url: keyed.url, apiKey: keyed.key });
  let box;
  before(async () => (box = await client.create({ labels: { made_by: "tests" }, env: { some_name: "1" } })));
  after(() => box?.destroy());

  test("sandboxes are made, found, changed, stopped, started and destroyed", async () => {
    const other = await client.create({ name: `b-${Date.now()}`, labels: { kind: "other" }, idleTimeout: "10m", memory: "256m" });
    assert.equal(other.status, "running");
    assert.deepEqual([other.info.idleTimeout, other.info.limits.memory], [600, 256 << 20]);
    for (const id of [other.id, other.shortId, other.name, other.info.label]) {
      assert.equal((await client.get(id)).id, other.id);
    }
    assert.deepEqual((await client.list({ labels: { kind: "other" } }).all()).map((one) => one.id), [other.id]);
    assert.deepEqual((await client.list({ labels: { kind: "other" }, status: ["stopped"] }).all()), []);
    await other.update({ labels: { kind: null, x_y: "z" }, lifetime: 3600 });
    assert.deepEqual(other.info.labels, { x_y: "z" });
    await other.files.write("kept", "x");
    assert.equal((await other.stop()).status, "stopped");
    await assert.rejects(other.exec("true"), { name: "NotRunning", status: 409 });
    await assert.rejects(other.terminal(), { name: "NotRunning" });
    assert.equal((await other.start()).status, "running");
    assert.equal(await other.files.readText("kept"), "x");
    assert.ok((await other.events().all()).some((event) => event.status === "stopped"));
    await other[Symbol.asyncDispose]();
    await other[Symbol.asyncDispose](); // it is gone, which is what was wanted
    await assert.rejects(client.get(other.id), { name: "SandboxGone", reason: "destroyed" });
    await assert.rejects(client.get("nobody"), (error) => error.name === "NotFound");
  });

  test("a wrong key, and none", async () => {
    await assert.rejects(new Client({ url: keyed.url, apiKey: "abx_wrong" }).version(), { name: "Unauthenticated", status: 401 });
    await assert.rejects(new Client({ url: "http://127.0.0.1:1", retries: 0 }).version(), { name: "ConnectionError", status: 0 });
  });

  test("a command's end and its output", async () => {
    const result = await box.exec(["sh", "-c", 'echo out; echo err >&2; cat; echo "$some_name$A_b"; exit 3'], { stdin: "typed\n", env: { A_b: "c" }, workdir: "/tmp" });
    assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, "out\ntyped\n1c\n", "err\n"]);
    assert.ok(result.output.includes("out\n") && result.output.includes("err\n"));
    const ended = await box.exec("echo begun; sleep 60", { timeout: 0.5 });
    assert.deepEqual([ended.timedOut, ended.stdout], [true, "begun\n"]);
    assert.equal((await box.exec("kill -TERM $$")).signal, 15);
    const cut = await box.exec("seq 10000", { maxOutput: 100 });
    assert.deepEqual([cut.truncated.stdout, cut.truncated.stderr], [true, false]);
    await assert.rejects(box.exec(""), { name: "InvalidArgument" });
  });

  test("B100 bytes are exact, and a text is one", async () => {
    await box.files.write("image.png", png);
    const read = await box.files.read("image.png");
    assert.ok(read instanceof Uint8Array);
    assert.deepEqual(read, png);
    assert.deepEqual(await box.files.read("image.png", { offset: 1, length: 3 }), png.slice(1, 4));
    assert.deepEqual(await box.files.read("image.png", { length: 0 }), new Uint8Array());
    await assert.rejects(box.files.readText("image.png"), { name: "InvalidArgument", code: "not_text" });
    await box.exec("truncate -s 300M huge"); // a sandbox can have a file of any size
    await assert.rejects(box.files.read("huge"), { name: "TooLarge", code: "too_large" });
    await box.files.write("text", "\uFEFFü\n");
    assert.equal(await box.files.readText("text"), "\uFEFFü\n");
    const { stdout } = await box.exec("cat image.png", { encoding: "bytes" });
    assert.deepEqual(stdout, png);
    assert.ok((await box.exec("cat image.png")).stdout.includes("\uFFFD"));
    const parts = (await all(box.stream("cat image.png; cat image.png >&2", { encoding: "bytes" }))).filter((event) => event.data);
    assert.deepEqual(parts.map((event) => [event.type, event.data]).sort(), [["stderr", png], ["stdout", png]]);
  });

  test("a stream gives output while the command runs, and no character in two parts", async () => {
    const seen = [];
    const stream = box.stream("printf '\\303'; sleep 0.2; printf '\\274\\n'; until [ -e go ]; do sleep 0.05; done; echo two; exit 7");
    for await (const event of stream) {
      if (event.type === "stdout") seen.push(event.data);
      if (event.data === "ü\n") await box.files.write("go", "");
    }
    assert.deepEqual(seen, ["ü\n", "two\n"]);
    assert.equal(stream.result.exitCode, 7);
    // Leaving ends the command.
    const left = box.stream("echo $$; exec sleep 1000", { onDisconnect: "kill_now" });
    for await (const event of left) if (event.type === "stdout") break;
    await until("end of the command that was left", async () => (await box.process(left.execId).info()).state === "ended");
  });

  test("B027 no character is cut by the edge of a part", async () => {
    const argv = ["python3", "-c", "import os;b=('é'*200001).encode();[os.write(1,b[i:i+4097]) for i in range(0,len(b),4097)]"];
    const want = "é".repeat(200_001);
    const streamed = (await all(box.stream(argv))).filter((event) => event.type === "stdout").map((event) => event.data);
    assert.equal(streamed.join(""), want);
    assert.equal((await box.exec(argv)).stdout, want);
    const sandbox = new Sandbox(keyed.url, { apiKey: keyed.key });
    await sandbox.create({ sessionId: `b027-${Date.now()}`, allowedHosts: ["localhost"] });
    await sandbox.writeFile("b027.py", argv[2]);
    const messages = (await all(sandbox.execStream("python3 b027.py"))).filter((message) => message.type === "stdout").map((message) => message.data);
    assert.equal(messages.join(""), want);
    await sandbox.destroy();
  });

  test("B043 exit codes are the command's in every way to run it", async () => {
    await box.sessions.create("b043");
    const sandbox = new Sandbox(keyed.url, { apiKey: keyed.key });
    await sandbox.create({ allowedHosts: ["localhost"] });
    for (const code of [0, 3, 255]) {
      const command = `exit ${code}`;
      const stream = box.stream(command);
      await all(stream);
      const terminal = await box.terminal({ command });
      await all(terminal);
      const got = {
        exec: (await box.exec(command)).exitCode,
        stream: stream.result.exitCode,
        session: (await box.exec(`(${command})`, { session: "b043" })).exitCode,
        background: (await (await box.background(command)).wait()).exitCode,
        terminal: terminal.result.exitCode,
        grpc: (await sandbox.exec(command)).exitCode,
        grpcStream: (await all(sandbox.execStream(command))).at(-1).exitCode,
      };
      for (const [way, value] of Object.entries(got)) assert.equal(value, code, way);
    }
    await sandbox.destroy();
    await box.sessions.remove("b043");
  });

  const long = process.env.AGENTBOX_TEST_LONG ? {} : { skip: "it takes a minute and a half: set AGENTBOX_TEST_LONG" };
  test("B048 no deadline of a minute bounds a command", long, async () => {
    const command = "sleep 75; echo ok";
    const sandbox = new Sandbox(keyed.url, { apiKey: keyed.key });
    await sandbox.create({ allowedHosts: ["localhost"] });
    const ways = [
      async () => (await box.exec(command, { timeout: 120 })).stdout,
      async () => (await all(box.stream(command, { timeout: 120 }))).find((event) => event.type === "stdout").data,
      async () => (await (await box.background(command)).wait()).stdout,
      async () => (await sandbox.exec(command, { timeout: 120 })).stdout,
      async () => (await all(sandbox.execStream(command)))[0].data,
    ];
    assert.deepEqual(await Promise.all(ways.map((way) => way())), ways.map(() => "ok\n"));
    await sandbox.destroy();
  });

  test("B075 a program that is not there is told as it is", async () => {
    const stream = box.stream(["/nonexistent"]);
    const events = await all(stream);
    assert.equal(stream.result.exitCode, 127);
    assert.ok(stream.result.reason.includes("/nonexistent") || events.some((event) => String(event.data).includes("/nonexistent")), JSON.stringify(events));
    const result = await box.exec(["/nonexistent"]);
    for (const name of ["output", "stdout", "stderr", "reason"]) assert.equal(typeof result[name], "string", name);
  });

  test("B097 files may be empty", async () => {
    for (const data of ["", new Uint8Array(), new Blob([]).stream()]) {
      await box.files.write("empty", "x");
      await box.files.write("empty", data);
      assert.deepEqual([(await box.files.stat("empty")).size, await box.files.readText("empty"), (await box.files.read("empty")).length], [0, "", 0]);
    }
    assert.deepEqual((await box.files.list().all()).filter((file) => file.name === "empty").map((file) => file.size), [0]);
  });

  test("a signal ends a stream", async () => {
    const stop = new AbortController();
    const stream = box.stream("echo on; sleep 1000", { signal: stop.signal, onDisconnect: "kill_now" });
    await assert.rejects(async () => {
      for await (const event of stream) if (event.type === "stdout") stop.abort();
    }, { name: "AbortError" });
    await until("end of the command", async () => (await box.process(stream.execId).info()).state === "ended");
  });

  test("a command in the background", async () => {
    const process = await box.background("echo one; read x; echo got $x; cat; echo e >&2; exit 4", { openStdin: true });
    assert.equal(await process.wait({ timeout: 0 }), null);
    await process.write("line\n");
    await process.write(new Blob(["rest"]).stream());
    await process.closeStdin();
    const result = await process.wait();
    assert.deepEqual([result.exitCode, result.stdout, result.stderr], [4, "one\ngot line\nrest", "e\n"]);
    assert.deepEqual((await process.wait({ encoding: "bytes" })).stderr, new Uint8Array([0x65, 0x0a]));
    const events = await all(process.attach({ offset: { stdout: 4, stderr: 2 } }));
    assert.deepEqual(events.filter((event) => event.data).map((event) => event.data).join(""), "got line\nrest");
    assert.equal(text(await process.output("stdout", 13)), "rest");
    await assert.rejects(process.output("stdout", 10_000), { name: "OutOfRange", status: 416 });
    const sleeper = await box.background(["sleep", "1000"]);
    assert.ok((await box.processes().all()).some((one) => one.execId === sleeper.execId && one.state === "running"));
    await sleeper.kill();
    assert.equal((await sleeper.wait()).signal, 9);
  });

  test("a terminal, and the same one again", async () => {
    const terminal = await box.terminal({ cols: 100, rows: 30, command: "stty size; read x; stty size; echo got $x; read y; exit 7", detach: true });
    let shown = "";
    for await (const bytes of terminal) {
      shown += text(bytes);
      if (shown.includes("30 100")) break;
    }
    terminal.resize(90, 20);
    await terminal.write("abc\n");
    for await (const bytes of terminal) {
      shown += text(bytes);
      if (shown.includes("got abc")) break;
    }
    assert.match(shown, /20 90/);
    const { execId } = terminal;
    terminal.close();
    const again = await box.terminal({ execId, offset: 0 });
    await again.write("\n");
    let twice = "";
    for await (const bytes of again) twice += text(bytes);
    assert.ok(twice.startsWith(shown) && again.result.exitCode === 7, twice);
    await assert.rejects(box.terminal({ execId: "nobody" }), { name: "ConnectionError" });
  });

  test("files", async () => {
    const { files } = box;
    await files.mkdir("t/a");
    await files.write("t/a/f", "one\n", { mode: "600" });
    await files.write("t/a/f", "two\n", { append: true });
    assert.deepEqual([(await files.stat("t/a/f")).mode, (await files.stat("t/a/f")).size], ["0600", 8]);
    await files.copy("t/a", "t/b", { recursive: true });
    await files.move("t/b/f", "t/b/g");
    await files.symlink("t/l", "b/g");
    assert.deepEqual([(await files.stat("t/l")).type, (await files.stat("t/l", { follow: true })).size], ["symlink", 8]);
    assert.equal(await files.chmod("t", "700", { recursive: true }), 5);
    assert.deepEqual((await files.list("t", { depth: 2 }).all()).map((file) => file.path).sort(), ["t/a", "t/a/f", "t/b", "t/b/g", "t/l"]);
    assert.deepEqual((await files.glob("**/g", { path: "t" })).items.map((file) => file.name), ["g"]);
    const found = await files.search("TWO", { path: "t", literal: true, ignoreCase: true, include: ["g"], context: 1 });
    assert.deepEqual(found.items.map((line) => [line.path, line.line, line.text, line.before]), [["t/b/g", 2, "two", ["one"]]]);
    assert.deepEqual([await files.exists("t/l"), await files.exists("t/none")], [true, false]);
    await assert.rejects(files.remove("t"), { name: "Conflict" });
    await files.remove("t", { recursive: true });
    await assert.rejects(files.read("t/a/f"), { name: "NotFound", code: "not_found" });
    await assert.rejects(files.list("image.png.none").all(), { name: "NotFound" });
  });

  test("files of any size, with progress", async () => {
    const size = 20 << 20;
    const part = new Uint8Array(1 << 20).map((_, i) => i * 7);
    async function* parts() {
      for (let sent = 0; sent < size; sent += part.length) yield part;
    }
    const told = [];
    await box.files.write("big", parts(), { onProgress: (done, total) => told.push([done, total]) });
    assert.deepEqual(told.at(-1), [size, undefined]);
    told.length = 0;
    const read = await box.files.read("big", { onProgress: (done, total) => told.push([done, total]) });
    assert.deepEqual([read.length, told.at(-1)], [size, [size, size]]);
    assert.deepEqual(read.slice(-part.length), part);
    const stream = await box.files.readStream("big");
    await stream.cancel(); // who does not want the rest says so
  });

  test("local files", async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "agentbox-"));
    t.after(() => rm(dir, { recursive: true }));
    await writeFile(join(dir, "in"), png);
    const told = [];
    await upload(box, join(dir, "in"), "up/in", { onProgress: (done, total) => told.push([done, total]) });
    assert.deepEqual(told.at(-1), [png.length, png.length]);
    await download(box, "up/in", join(dir, "out"));
    assert.deepEqual(new Uint8Array(await readFile(join(dir, "out"))), png);
    await assert.rejects(download(box, "up/none", join(dir, "out")), { name: "NotFound" });
    assert.deepEqual(new Uint8Array(await readFile(join(dir, "out"))), png);
  });

  test("archives", async () => {
    await box.exec("mkdir -p from/d && echo 1 >from/d/f && echo 2 >from/skip.log");
    for (const gzip of [false, true]) {
      const archive = await box.files.readArchive("from", { gzip, exclude: ["*.log"] });
      const bytes = new Uint8Array(await new Response(archive).arrayBuffer());
      assert.equal(bytes[0] === 0x1f && bytes[1] === 0x8b, gzip);
      await box.files.writeArchive(`to-${gzip}`, bytes, { gzip });
      assert.equal((await box.exec(`cd to-${gzip} && find . -type f`)).stdout, "./d/f\n");
    }
    await assert.rejects(box.files.writeArchive("bad", "no archive"), { name: "InvalidArgument" });
  });

  test("a directory is watched", async () => {
    await box.files.mkdir("watched");
    const seen = [];
    for await (const event of box.files.watch("watched")) {
      seen.push([event.type, event.name]);
      if (event.type === "ready") await box.files.write("watched/f", "x");
      if (event.name === "f" && event.type !== "ready") break;
    }
    assert.equal(seen[0][0], "ready");
    assert.equal(seen.at(-1)[1], "f");
  });

  test("ports", async () => {
    const server = `import socket
s = socket.create_server(("127.0.0.1", 9000))
while True:
    c, _ = s.accept()
    data = b""
    while more := c.recv(65536): data += more
    c.sendall(data.upper()); c.close()`;
    const process = await box.background(["python3", "-c", server]);
    await until("port", async () => (await box.ports()).some((one) => one.port === 9000 && one.address === "127.0.0.1"));
    const connection = await box.connect(9000);
    const sent = "x".repeat(3 << 20);
    const writer = connection.writable.getWriter();
    await writer.write(new TextEncoder().encode(sent));
    await writer.close();
    assert.equal(await new Response(connection.readable).text(), sent.toUpperCase());
    await assert.rejects(box.connect(9001), { name: "Conflict", message: "nothing listens on port 9001" });
    const here = await forward(box, 9000);
    for (const word of ["one", "two"]) {
      const socket = connect(here.port, here.host);
      socket.end(word);
      assert.equal(text(Buffer.concat(await all(socket))), word.toUpperCase());
    }
    await here.close();
    await process.kill();
  });

  test("NET-18 no hosts are no network", async () => {
    const cases = [
      [undefined, "none", []],
      [{}, "none", []],
      [{ allow: undefined }, "none", []],
      [{ allow: [] }, "none", []],
      [{ allow: ["localhost"] }, "allowlist", ["localhost"]],
    ];
    for (const [network, mode, allow] of cases) {
      const one = await client.create({ network });
      assert.deepEqual([one.info.network.mode, one.info.network.allow], [mode, allow], JSON.stringify(network));
      const reach = await one.exec(`python3 -c "import urllib.request; urllib.request.urlopen('${keyed.url}', timeout=10)"`);
      assert.notEqual(reach.exitCode, 0, "it reaches the host");
      await one.destroy();
    }
    for (const host of ["", "none"]) {
      await assert.rejects(client.create({ network: { allow: [host] } }), { name: "InvalidArgument" });
    }
    // The class Sandbox has the default hosts where none are named, and else those alone.
    for (const [allowedHosts, want] of [[undefined, 8], [[], 8], [["localhost"], 1], [["none"], 1]]) {
      const sandbox = new Sandbox(keyed.url, { apiKey: keyed.key });
      await sandbox.create({ allowedHosts });
      assert.equal(sandbox.allowedHosts.length, want);
      await sandbox.destroy();
    }
    await assert.rejects(new Sandbox(keyed.url, { apiKey: keyed.key }).create({ allowedHosts: [""] }), { code: 3 });
  });

  test("the network is changed while the sandbox runs", async () => {
    assert.equal((await box.network.get()).mode, "none");
    assert.deepEqual((await box.network.change({ add: ["example.com", "example.org"] })).allow, ["example.com", "example.org"]);
    assert.deepEqual((await box.network.set({ allow: ["example.org"], cut: true })).allow, ["example.org"]);
    const denied = await box.exec("curl -sSf http://denied.example.net/");
    assert.notEqual(denied.exitCode, 0);
    const logged = await until("record", async () => (await box.network.log({ since: new Date(0), order: "oldest" }).all()).find((one) => one.host === "denied.example.net"));
    assert.equal(logged.verdict, "denied");
    const [request] = (await box.network.get()).requests;
    assert.ok((await client.networkRequests().all()).some((one) => one.id === request.id));
    assert.ok((await client.decide(box.id, request.id, "allow")).allow.some((host) => host.startsWith("denied.example.net")));
    await box.network.set({ mode: "none" });
    await assert.rejects(box.packages.pip(["six"]), { name: "PermissionDenied", message: /allowed_hosts/ });
  });

  test("sessions keep directory and variables", async () => {
    const session = await box.sessions.create("work");
    assert.equal(session.name, "work");
    await box.exec("cd /tmp; word=kept", { session: "work" });
    assert.equal((await box.exec("echo $PWD $word", { session: "work" })).stdout, "/tmp kept\n");
    assert.deepEqual((await box.sessions.list().all()).map((one) => one.name), ["work"]);
    await box.sessions.remove("work");
    await assert.rejects(box.sessions.remove("work"), { name: "NotFound" });
  });

  test("what a sandbox uses, what isolates it, what happened to it", async () => {
    assert.ok((await box.stats()).processes > 0);
    for await (const stats of box.followStats()) {
      assert.ok(stats.cpu > 0);
      break;
    }
    assert.equal((await box.isolation()).backend, "gvisor");
    for await (const event of box.followEvents()) {
      assert.ok(event.seq > 0);
      break;
    }
  });

  test("volumes outlive sandboxes", async () => {
    const name = `v-${Date.now()}`;
    const volume = await client.volumes.create(name, { size: "64m" });
    assert.equal(volume.name, name);
    try {
      const one = await client.create({ volumes: [{ name, path: "/data" }] });
      await one.exec("echo kept >/data/f");
      assert.deepEqual((await client.volumes.get(name)).usedBy, [one.id]);
      await assert.rejects(client.volumes.remove(name), { name: "Conflict" });
      await one.destroy();
      const archive = new Uint8Array(await new Response(await client.volumes.readArchive(name)).arrayBuffer());
      await client.volumes.writeArchive(name, archive);
      const two = await client.create({ volumes: [{ name, path: "/data", readOnly: true }] });
      assert.equal(await two.files.readText("/data/f"), "kept\n");
      await two.destroy();
    } finally {
      await client.volumes.remove(name);
    }
    assert.ok(!(await client.volumes.list().all()).some((one) => one.name === name));
  });

  test("keys, secrets, images, records", async () => {
    const key = await client.keys.create({ name: "ts", owner: "team" });
    const theirs = new Client({ url: keyed.url, apiKey: key.key });
    await assert.rejects(theirs.get(box.id), { name: "NotFound" });
    await assert.rejects(theirs.keys.list().all(), { name: "PermissionDenied" });
    assert.ok((await client.keys.list().all()).some((one) => one.id === key.id && !one.revokedAt));
    await client.keys.revoke(key.id);
    await assert.rejects(theirs.version(), { name: "Unauthenticated" });
    const secret = await client.secrets.set({ name: "TS_TOKEN", hosts: ["api.example.com"], value: "secret-value" });
    assert.deepEqual(secret.hosts, ["api.example.com"]);
    assert.ok((await client.secrets.list().all()).some((one) => one.name === "TS_TOKEN"));
    await client.secrets.remove("TS_TOKEN");
    assert.ok((await client.images.list().all()).some((one) => one.name === "small"));
    assert.equal((await client.images.get("small")).name, "small");
    assert.ok((await client.audit({ action: "create", since: new Date(Date.now() - 3_600_000) }).all()).some((record) => record.sandbox === box.id));
  });
});
