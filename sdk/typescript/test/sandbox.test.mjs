// The class Sandbox, by gRPC-Web and by gRPC, against a real server.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Sandbox } from "@agentbox/client";
import { grpcTransport } from "@agentbox/client/node";

import { keyed, open } from "./server.mjs";

const transports = {
  "gRPC-Web": () => new Sandbox(open.url),
  "gRPC": () => new Sandbox(undefined, { transport: grpcTransport(open.url, "") }),
};

for (const [name, make] of Object.entries(transports)) {
  test(`C1 the class Sandbox, by ${name}`, open.needed, async () => {
    const sandbox = make();
    assert.deepEqual([sandbox.sessionId, sandbox.allowedHosts, sandbox.networkEnabled], [null, [], false]);
    const session = await sandbox.create();
    try {
      assert.equal(session.sessionId, sandbox.sessionId);
      assert.match(session.containerId, /^[0-9a-f]{12}$/);
      assert.equal(session.status, "running");
      assert.deepEqual(sandbox.allowedHosts, session.allowedHosts);
      assert.ok(sandbox.networkEnabled && sandbox.allowedHosts.length > 0);
      sandbox.allowedHosts.length = 0; // a copy
      assert.ok(sandbox.allowedHosts.length > 0);
      await commands(sandbox);
      await files(sandbox);
    } finally {
      assert.equal(await sandbox.destroy(), true);
    }
    assert.deepEqual([sandbox.sessionId, sandbox.allowedHosts, sandbox.networkEnabled], [null, [], false]);
    assert.equal(await sandbox.destroy(), false);
  });
}

async function commands(sandbox) {
  let result = await sandbox.exec("pwd; echo e >&2; exit 42");
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.timedOut], [42, "/workspace\n", "e\n", false]);
  result = await sandbox.exec("echo begun; sleep 60", { timeout: 1, workdir: "/tmp" });
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.timedOut], [-1, "begun\n", "Command timed out", true]);
  const messages = [];
  for await (const message of sandbox.execStream("pwd; exit 3", "/tmp")) {
    messages.push([message.type, message.data, message.exitCode]);
  }
  assert.deepEqual(messages, [["stdout", "/tmp\n", undefined], ["exit", "", 3]]);
  // It streams: the second part waits for what is done when the first has come.
  const parts = [];
  for await (const message of sandbox.execStream("echo one; until [ -e go ]; do sleep 0.05; done; echo two")) {
    parts.push(message.data);
    if (message.data === "one\n") await sandbox.writeFile("go", "");
  }
  assert.deepEqual(parts, ["one\n", "two\n", ""]);
  // Who leaves the loop ends the command.
  for await (const message of sandbox.execStream("echo $$ >pid; echo $$; exec sleep 1000")) {
    assert.equal(message.type, "stdout");
    break;
  }
  const gone = await sandbox.exec("for i in $(seq 300); do kill -0 $(cat pid) 2>/dev/null || exit 0; sleep 0.1; done; exit 1", { timeout: 60 });
  assert.equal(gone.exitCode, 0, "the command runs on");
}

async function files(sandbox) {
  await sandbox.writeFile("d/f.txt", "ü\n");
  await sandbox.writeFile("d/f.txt", "b", "a");
  assert.equal(await sandbox.readFile("d/f.txt"), "ü\nb");
  await sandbox.writeFile("empty", "");
  assert.equal(await sandbox.readFile("empty"), "");
  await assert.rejects(sandbox.readFile("nope"), { message: "Failed to read file: File not found" });
  await assert.rejects(sandbox.writeFile("/etc/x", ""), { message: "Failed to write file: Path not allowed" });
  const python = await sandbox.runPython("import sys; print('ran'); sys.exit(5)");
  assert.deepEqual([python.exitCode, python.stdout], [5, "ran\n"]);
  // The server gets it, and says no in its own way.
  const refused = await sandbox.pipInstall(["--index-url=x"]);
  assert.deepEqual([refused.exitCode, refused.stderr], [-1, "Invalid package specifier: --index-url=x"]);
}

test("C1 the same session and its options", open.needed, async () => {
  const first = new Sandbox(open.url);
  const session = await first.create({ sessionId: `tsc-${Date.now()}`, tenantId: "acme", allowedHosts: ["example.com", "*.example.org"] });
  try {
    assert.deepEqual([session.tenantId, session.allowedHosts], ["acme", ["example.com", "*.example.org"]]);
    const second = new Sandbox(open.url);
    const again = await second.create({ sessionId: session.sessionId });
    assert.equal(again.containerId, session.containerId);
    assert.deepEqual(second.allowedHosts, ["example.com", "*.example.org"]);
  } finally {
    await first.destroy();
  }
});

test("C1 with a key, and without one", keyed.needed, async () => {
  await assert.rejects(new Sandbox(keyed.url, { apiKey: "" }).create(), { code: 16, rawMessage: /API key/ });
  await assert.rejects(new Sandbox(keyed.url, { apiKey: "abx_wrong" }).create(), { code: 16 });
  for (const sandbox of [new Sandbox(keyed.url, { apiKey: keyed.key }), new Sandbox("", { transport: grpcTransport(keyed.url, keyed.key) })]) {
    await sandbox.create();
    assert.equal((await sandbox.exec("echo hi")).stdout, "hi\n");
    assert.equal(await sandbox.destroy(), true);
  }
});

test("C5 calls without a session", async () => {
  const sandbox = new Sandbox("http://127.0.0.1:1"); // where nobody is: nothing is sent
  const calls = [
    () => sandbox.exec("true"),
    () => sandbox.execStream("true").next(),
    () => sandbox.writeFile("f", ""),
    () => sandbox.readFile("f"),
    () => sandbox.pipInstall(["x"]),
    () => sandbox.runPython("1"),
  ];
  for (const call of calls) {
    await assert.rejects(call, { name: "Error", message: "No active session. Call create() first." });
  }
  assert.equal(await sandbox.destroy(), false);
});

test("C6 runPython leaves no file", open.needed, async () => {
  const sandbox = new Sandbox(open.url);
  await sandbox.create({ allowedHosts: ["localhost"] });
  try {
    const left = async () => (await sandbox.exec("ls _temp_script.py", { timeout: 30 })).exitCode !== 0;
    assert.equal((await sandbox.runPython("print(open('_temp_script.py').read())")).stdout.trim(), "print(open('_temp_script.py').read())");
    assert.ok(await left(), "after success");
    assert.notEqual((await sandbox.runPython("raise ValueError('no')")).exitCode, 0);
    assert.ok(await left(), "after failure");
    assert.equal((await sandbox.runPython("import time; time.sleep(60)", 1)).timedOut, true);
    assert.ok(await left(), "after a time-out");
    // One that can't be removed: what the program did is told all the same.
    const odd = await sandbox.runPython("import os; os.remove('_temp_script.py'); os.makedirs('_temp_script.py/d'); print('done')");
    assert.deepEqual([odd.exitCode, odd.stdout], [0, "done\n"]);
  } finally {
    await sandbox.destroy();
  }
});

test("C7 pipInstall names the hosts that are missing", open.needed, async () => {
  const hosts = ["pypi.org", "files.pythonhosted.org"];
  const cases = [
    [["example.com"], `pip install requires ${hosts.join(", ")} in allowedHosts`],
    [[hosts[0]], `pip install requires ${hosts[1]} in allowedHosts`],
    [["example.com", hosts[1]], `pip install requires ${hosts[0]} in allowedHosts`],
  ];
  for (const [allowedHosts, message] of cases) {
    const sandbox = new Sandbox(open.url);
    await sandbox.create({ allowedHosts });
    await assert.rejects(sandbox.pipInstall(["six"]), { message });
    await sandbox.destroy();
  }
});
