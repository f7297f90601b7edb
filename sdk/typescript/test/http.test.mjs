import assert from "node:assert/strict";
import { test } from "node:test";

import { AgentboxError, Client, RateLimited } from "@agentbox/client";

import { boxOf, info, serve } from "./support.mjs";

const answers = [
  [400, { detail: "invalid cpus", code: "invalid_value", field: "cpus", allowed: "1 to 2", request_id: "r1" }, "InvalidArgument"],
  [400, { detail: "no", code: "unsupported" }, "Unsupported"],
  [401, { detail: "an API key is needed", code: "unauthenticated" }, "Unauthenticated"],
  [403, { detail: "no", code: "forbidden" }, "PermissionDenied"],
  [404, { detail: "Sandbox not found", code: "not_found" }, "NotFound"],
  [404, { detail: "Sandbox not found", code: "sandbox_expired", reason: "idle" }, "SandboxGone"],
  [409, { detail: "Sandbox is not running", code: "not_running" }, "NotRunning"],
  [409, { detail: "there is one", code: "already_exists" }, "AlreadyExists"],
  [409, { detail: "no", code: "conflict" }, "Conflict"],
  [413, { detail: "too large", code: "too_large" }, "TooLarge"],
  [416, { detail: "none there", code: "out_of_range" }, "OutOfRange"],
  [429, { detail: "too many", code: "quota_exceeded" }, "RateLimited"],
  [500, { detail: "internal error", code: "internal" }, "Internal"],
  [409, { detail: "new", code: "of_a_later_version" }, "Conflict"],
  [418, { detail: "new", code: "of_a_later_version" }, "InvalidArgument"],
];

test("errors are of the kind that their code says", async (t) => {
  let answer;
  const url = await serve(t, (_, response) => response.writeHead(answer[0], { "Retry-After": "30" }).end(JSON.stringify(answer[1])));
  const client = new Client({ url });
  for (answer of answers) {
    const [status, body, name] = answer;
    await assert.rejects(client.version(), (error) => {
      assert.equal(error.name, name);
      assert.ok(error instanceof AgentboxError && error instanceof Error);
      assert.equal(error.message, body.detail);
      assert.deepEqual([error.status, error.code, error.field, error.allowed, error.reason], [status, body.code, body.field, body.allowed, body.reason]);
      assert.equal(error.retryAfter, 30);
      return true;
    });
  }
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
