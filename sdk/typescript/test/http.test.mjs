import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { AgentboxError, Client, RateLimited, Sandbox } from "@agentbox/client";
import { download } from "@agentbox/client/node";

import { boxOf, info, serve } from "./support.mjs";

/** What the clients of all languages make of codes and statuses. */
const table = JSON.parse(await readFile(new URL("../../errors.json", import.meta.url), "utf8"));
const named = (kind) => (kind === "ServerError" ? "Internal" : kind);

test("errors are of the kind that their code says", async (t) => {
  let code;
  const body = () => ({ detail: "in words", code, field: "f", allowed: "a", reason: "idle", request_id: "r1" });
  const url = await serve(t, (_, response) => response.writeHead(400, { "Retry-After": "30" }).end(JSON.stringify(body())));
  const client = new Client({ url });
  for (const [one, kind] of Object.entries(table.codes)) {
    code = one;
    await assert.rejects(client.version(), (error) => {
      assert.equal(error.name, named(kind), code);
      assert.ok(error instanceof AgentboxError && error instanceof Error);
      assert.deepEqual([error.message, error.status, error.code, error.requestId, error.field], ["in words", 400, code, "r1", "f"]);
      assert.deepEqual([error.allowed, error.reason, error.retryAfter], ["a", "idle", 30]);
      return true;
    });
  }
});

test("a code of a later version, or none, is what the status says", async (t) => {
  let answer;
  const url = await serve(t, (_, response) => response.writeHead(answer.status, { Location: "/" }).end(answer.body));
  const client = new Client({ url, retries: 0, fetch: (input, init) => fetch(input, { ...init, redirect: "manual" }) });
  for (const [status, kind] of Object.entries(table.statuses)) {
    for (const body of ['{"detail":"new","code":"of_a_later_version"}', "<h1>gateway</h1>"]) {
      answer = { status: Number(status), body };
      await assert.rejects(client.version(), { name: named(kind), status: answer.status });
    }
  }
});

test("a file is missing only where the sandbox is there", async (t) => {
  let answer;
  const url = await serve(t, (request, response) =>
    request.url.includes("/stat") ? response.writeHead(404).end(JSON.stringify(answer)) : response.end(info),
  );
  const box = await boxOf(url);
  answer = { detail: "stat f: not found", code: "not_found" };
  assert.equal(await box.files.exists("f"), false);
  answer = { detail: "Sandbox not found", code: "not_found" };
  await assert.rejects(box.files.exists("f"), { name: "NotFound" });
  answer = { detail: "Sandbox not found", code: "sandbox_expired" };
  await assert.rejects(box.files.exists("f"), { name: "SandboxGone" });
});

test("the fields of a wrong form are told", async (t) => {
  const detail = [{ type: "missing", loc: ["body", "command"], msg: "it is missing", input: null }];
  const url = await serve(t, (_, response) => response.writeHead(422).end(JSON.stringify({ detail })));
  await assert.rejects(new Client({ url }).create(), { name: "InvalidArgument", status: 422, message: "body.command: it is missing", fields: detail });
});

test("an answer that is no JSON is an error with its status", async (t) => {
  const url = await serve(t, (_, response) => response.writeHead(502).end("<h1>Bad Gateway</h1>"));
  await assert.rejects(new Client({ url, retries: 0 }).version(), { name: "Unavailable", status: 502, message: "The server answered 502 Bad Gateway" });
});

test("an answer that is not whole, or no JSON, is no answer", async (t) => {
  for (const end of [(response) => response.end("<h1>hello</h1>"), (response) => response.writeHead(200, { "Content-Length": 100 }).write('{"api"', () => response.destroy())]) {
    const url = await serve(t, (_, response) => end(response));
    await assert.rejects(new Client({ url, retries: 0 }).version(), { name: "ConnectionError" });
  }
});

test("a key is in every request, and in no URL", async (t) => {
  const url = await serve(t, (request, response) => {
    assert.ok(!request.url.includes("abx_"));
    response.end(JSON.stringify({ api: "v1", version: request.headers.authorization }));
  });
  assert.equal((await new Client({ url, apiKey: "abx_1" }).version()).version, "Bearer abx_1");
});

/** Counts requests to a server that fails the first ones in a way. */
async function failing(t, fail, most = 2) {
  const asked = [];
  const url = await serve(t, async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    asked.push({ method: request.method, path: request.url, key: request.headers["idempotency-key"], body });
    if (asked.length <= most) {
      return fail(response);
    }
    return response.end(request.url.endsWith("/execute") ? '{"exec_id":"e","exit_code":0}' : info);
  });
  return { url, asked };
}

const failures = {
  "a connection that breaks": (response) => response.destroy(),
  "a server that is about to stop": (response) => response.writeHead(503, { "Retry-After": "0" }).end('{"detail":"stops","code":"unavailable"}'),
  "too many requests": (response) => response.writeHead(429, { "Retry-After": "0" }).end('{"detail":"too many","code":"rate_limited"}'),
};

for (const [name, fail] of Object.entries(failures)) {
  test(`what can't be done twice is sent again: ${name}`, async (t) => {
    for (const call of [(client) => client.get("box"), (client) => client.create({ name: "box" })]) {
      const { url, asked } = await failing(t, fail);
      assert.equal((await call(new Client({ url }))).id, "box");
      assert.equal(asked.length, 3);
      assert.equal(new Set(asked.map((one) => one.key)).size, 1, "with the same key");
      assert.equal(asked[0].key === undefined, asked[0].method === "GET");
      assert.equal(asked[2].body, asked[0].body);
    }
  });

  test(`what could be done twice is sent once: ${name}`, async (t) => {
    const calls = [
      (box) => box.stop(),
      (box) => box.destroy(),
      (box) => box.update({ memory: "1g" }),
      (box) => box.files.write("f", "x"),
      (box) => box.files.mkdir("d"),
      (box) => box.network.change({ add: ["example.com"] }),
      (box) => box.process("e").signal("TERM"),
      (box) => box.exec("true", { idempotencyKey: "" }),
    ];
    for (const call of calls) {
      const { url, asked } = await failing(t, (response) => (asked.length === 1 ? response.end(info) : fail(response)), 9);
      const box = await boxOf(url);
      await assert.rejects(call(box), AgentboxError);
      assert.equal(asked.length, 2, asked[1].path);
    }
  });
}

test("two commands have two keys; yours is taken", async (t) => {
  const { url, asked } = await failing(t, undefined, 0);
  const box = await boxOf(url);
  await box.exec("true");
  await box.exec("true");
  await box.exec("true", { idempotencyKey: "mine" });
  const keys = asked.slice(1).map((one) => one.key);
  assert.ok(keys[0] && keys[1] && keys[0] !== keys[1]);
  assert.equal(keys[2], "mine");
  assert.ok(!asked[3].body.includes("mine"));
});

test("who has to wait for long is told, not kept", async (t) => {
  const { url, asked } = await failing(t, (response) => response.writeHead(429, { "Retry-After": "3600" }).end('{"detail":"too many","code":"rate_limited"}'), 9);
  await assert.rejects(new Client({ url }).version(), (error) => error instanceof RateLimited && error.retryAfter === 3600);
  assert.equal(asked.length, 1);
});

test("a signal ends a call with its reason", async (t) => {
  const { promise: arrived, resolve } = deferred();
  const url = await serve(t, (request, response) => (request.url.endsWith("/execute") ? resolve() : response.end(info)));
  const box = await boxOf(url);
  const stop = new AbortController();
  const call = box.exec("sleep 100", { signal: stop.signal });
  await arrived;
  stop.abort(new Error("that is enough"));
  await assert.rejects(call, { message: "that is enough" });
});

test("requests have the API's names, and the user's own in maps", async (t) => {
  const { url, asked } = await failing(t, undefined, 0);
  const client = new Client({ url });
  await client.create({ idleTimeout: 5, networkEnabled: true, env: { fooBar: "1" }, labels: { aB: "c" }, volumes: [{ name: "v", path: "/v", readOnly: true }] });
  assert.deepEqual(JSON.parse(asked[0].body), { idle_timeout: 5, network_enabled: true, env: { fooBar: "1" }, labels: { aB: "c" }, volumes: [{ name: "v", path: "/v", read_only: true }] });
  const box = await client.get("box");
  await box.exec(["echo", "x"], { maxOutput: "1m", stdin: new Uint8Array([0, 255]), onDisconnect: "kill_now" });
  assert.deepEqual(JSON.parse(asked[2].body), { command: ["echo", "x"], max_output: "1m", stdin_base64: "AP8=", on_disconnect: "kill_now" });
});

test("lists ask for further pages", async (t) => {
  const url = await serve(t, (request, response) => {
    const cursor = new URL(request.url, "http://x").searchParams.get("cursor");
    response.end(JSON.stringify(cursor ? { items: [{ id: "b" }], next_cursor: null } : { items: [{ id: "a" }], next_cursor: "c/1" }));
  });
  const boxes = await new Client({ url }).list().all();
  assert.deepEqual(boxes.map((box) => box.id), ["a", "b"]);
});

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

test("two downloads to one name don't meet, and one that breaks leaves nothing", async (t) => {
  const asked = [];
  const url = await serve(t, (request, response) => {
    if (!request.url.includes("/files")) {
      return response.end(info);
    }
    const half = String(asked.push(response)).repeat(1 << 20);
    response.writeHead(200, { "Content-Length": 2 * half.length }).write(half);
    if (request.url.includes("torn")) {
      return setTimeout(() => response.destroy(), 50);
    }
    return asked.length === 2 && asked.forEach((one, i) => one.end(String(i + 1).repeat(1 << 20)));
  });
  const box = await boxOf(url);
  const dir = await mkdtemp(join(tmpdir(), "agentbox-"));
  t.after(() => rm(dir, { recursive: true }));
  const local = join(dir, "local");
  await Promise.all([download(box, "f", local), download(box, "f", local)]);
  const got = await readFile(local, "utf8");
  assert.ok(got === got[0].repeat(2 << 20), `${got.length} bytes, of both`);
  await assert.rejects(download(box, "torn", local));
  assert.deepEqual(await readdir(dir), ["local"]);
  await writeFile(join(dir, "plain"), "");
  assert.equal((await stat(local)).mode, (await stat(join(dir, "plain"))).mode);
});

test("a tar that does not come whole is none", async (t) => {
  const whole = Buffer.concat([Buffer.alloc(1536, "x"), Buffer.alloc(1024)]);
  let sent;
  const url = await serve(t, async (request, response) => {
    if (!request.url.includes("/archive")) {
      return response.end(info);
    }
    for (let at = 0; at < sent.length; at += 700) {
      await new Promise((resolve) => response.write(sent.subarray(at, at + 700), resolve));
    }
    return response.end();
  });
  const box = await boxOf(url);
  const read = async (options) => (await new Response(await box.files.readArchive("d", options)).arrayBuffer()).byteLength;
  sent = whole;
  assert.equal(await read(), whole.length);
  for (const cut of [0, 512, 1536, 2048, whole.length - 1]) {
    sent = whole.subarray(0, cut);
    await assert.rejects(read(), { name: "ConnectionError" });
    assert.equal(await read({ gzip: true }), cut); // has an end of its own
  }
});

test("the class Sandbox says which server it does not reach, and why", async () => {
  for (const [url, why] of [["http://127.0.0.1:2", /ECONNREFUSED|bad port/], ["http://nowhere.invalid", /nowhere\.invalid|EAI_AGAIN|ENOTFOUND/]]) {
    await assert.rejects(new Sandbox(url).create(), (error) => {
      assert.ok(error.message.startsWith(`[unavailable] no connection to the server at ${url}: `), error.message);
      assert.match(error.message, why);
      return true;
    });
  }
});
