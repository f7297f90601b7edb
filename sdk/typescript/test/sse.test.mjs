// B081: a client that fails on frames it does not know.
import assert from "node:assert/strict";
import { test } from "node:test";

import { boxOf, info, serve } from "./support.mjs";

/** A command's events as no server of today sends them: every part that a client must pass over, or put together. */
const canned = (lineEnd) =>
  "\uFEFF" +
  [
    ": a comment, as servers send to keep the connection",
    ":",
    "",
    "event: start",
    'data: {"exec_id":"e1","of_a_later_version":{"a_b":1}}',
    "",
    "event: heartbeat",
    'data: {"at":1}',
    "",
    "data: no JSON, and of no name",
    "",
    "event: stdout",
    "id: 7-0",
    "retry: 1000",
    "unknown: field",
    "nonsense",
    'data: {"offset":0,',
    'data:"data":"héllo\\u2028 wörld\\n",',
    'data:  "more": [1]}',
    "",
    "event: stderr",
    "id: 7-3",
    'data: {"offset":0,"data":"e\\r\\n"}',
    "",
    "event: no data, so no event",
    "",
    "event: exit",
    'data: {"exec_id":"e1","exit_code":3,"signal":null,"timed_out":false,"oom_killed":false,"truncated":{"stdout":false,"stderr":false},"reason":"","duration":0.1,"cpu_time":0,"peak_memory":0,"new":1}',
    "",
    "",
  ].join(lineEnd);

async function eventsOf(t, write) {
  const url = await serve(t, (request, response) => {
    if (!request.url.endsWith("/execute/stream")) {
      return response.end(info);
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    return write(response);
  });
  const events = [];
  const stream = (await boxOf(url)).stream("true");
  for await (const event of stream) {
    events.push(event);
  }
  return { events, stream };
}

const want = [
  { type: "start", execId: "e1" },
  { type: "stdout", data: "héllo\u2028 wörld\n", offset: 0 },
  { type: "stderr", data: "e\r\n", offset: 0 },
];

for (const [name, lineEnd] of [["LF", "\n"], ["CRLF", "\r\n"], ["CR", "\r"]]) {
  test(`B081 frames that are not known, lines end in ${name}`, async (t) => {
    const whole = Buffer.from(canned(lineEnd));
    for (const size of [1, 2, 7, whole.length]) {
      const { events, stream } = await eventsOf(t, async (response) => {
        for (let at = 0; at < whole.length; at += size) {
          response.write(whole.subarray(at, at + size));
          if (at % 64 === 0) await new Promise(setImmediate); // so that parts go out on their own
        }
        response.end();
      });
      assert.deepEqual(events.slice(0, 3), want, `in parts of ${size}`);
      assert.equal(events.length, 4);
      assert.equal(events[3].result.exitCode, 3);
      assert.equal(stream.result.exitCode, 3);
      assert.equal(stream.execId, "e1");
    }
  });
}

test("an event without end is an error, not all memory", async (t) => {
  const stream = eventsOf(t, (response) => {
    response.write("data: ");
    const more = () => {
      while (!response.destroyed && response.write("x".repeat(1 << 20)));
    };
    response.on("drain", more);
    more();
  });
  await assert.rejects(stream, RangeError);
});

test("an error that ends a stream is one of its kind", async (t) => {
  const stream = eventsOf(t, (response) => response.end('event: start\ndata: {"exec_id":"e1"}\n\nevent: error\ndata: {"detail":"Sandbox not found","code":"sandbox_destroyed","reason":"oom","request_id":"r"}\n\n'));
  await assert.rejects(stream, { name: "SandboxGone", message: "Sandbox not found", reason: "oom", requestId: "r" });
});

test("a stream that breaks goes on behind the last event", async (t) => {
  const asked = [];
  const url = await serve(t, (request, response) => {
    if (!request.url.includes("/exec")) {
      return response.end(info);
    }
    asked.push([request.method, request.url, request.headers["last-event-id"]]);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    if (asked.length === 1) {
      return response.write('event: start\ndata: {"exec_id":"e1"}\n\nevent: stdout\nid: 2-0\ndata: {"offset":0,"data":"a\\n"}\n\nevent: std', () => response.destroy());
    }
    if (asked.length === 2) {
      return response.destroy();
    }
    return response.end('event: start\ndata: {"exec_id":"e1"}\n\nevent: stdout\nid: 4-0\ndata: {"offset":2,"data":"b\\n"}\n\nevent: exit\ndata: {"exit_code":0}\n\n');
  });
  const events = [];
  for await (const event of (await boxOf(url, { retries: 0 })).stream("true")) {
    events.push(event.data ?? event.type);
  }
  assert.deepEqual(events, ["start", "a\n", "b\n", "exit"]);
  assert.equal(asked[0][0], "POST");
  assert.deepEqual(asked.slice(1).map((one) => [one[0], one[2]]), [["GET", "2-0"], ["GET", "2-0"]]);
  assert.match(asked[1][1], /\/execs\/e1\/output$/);
});

test("B037 a stream that is lost is an error, and no exit code", async (t) => {
  const url = await serve(t, (request, response) => {
    if (!request.url.includes("/exec")) {
      return response.end(info);
    }
    if (request.method === "GET") { // the server came back and has no such command any more
      return response.writeHead(404).end('{"detail":"there is no such command","code":"not_found"}');
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    return response.write('event: start\ndata: {"exec_id":"e1"}\n\n', () => response.destroy());
  });
  const stream = (await boxOf(url)).stream("sleep 5; exit 0");
  const events = [];
  await assert.rejects(async () => {
    for await (const event of stream) events.push(event.type);
  }, { name: "NotFound" });
  assert.deepEqual([events, stream.result], [["start"], undefined]);
  // One that ends before the command is even known.
  const empty = await serve(t, (request, response) => response.end(request.url.includes("/exec") ? "" : info));
  await assert.rejects(async () => {
    for await (const _ of (await boxOf(empty)).stream("true"));
  }, { name: "ConnectionError" });
});
