// Servers that are none, or not the one that was meant.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { AgentboxError, Client } from "@agentbox/client";

import { boxOf, info, serve } from "./support.mjs";

const one = (url) => new Client({ url, apiKey: "the-key", retries: 0 });

test("nothing is sent to where a server leads", async (t) => {
  const seen = [];
  const elsewhere = await serve(t, (request, response) => (seen.push(request.url), response.end("{}")));
  for (const status of [301, 302, 303, 307, 308]) {
    const url = await serve(t, (request, response) => response.writeHead(status, { Location: elsewhere + request.url }).end());
    await assert.rejects(one(url).secrets.set({ name: "N", value: "a secret", hosts: ["example.com"] }), { name: "Internal", status });
    await assert.rejects(one(url).version(), { name: "Internal", status });
  }
  assert.deepEqual(seen, []);
});

test("an answer without end is given up", async (t) => {
  const spaces = gzipSync(Buffer.alloc(64 << 20, " "));
  let sent = 0;
  const url = await serve(t, (_, response) => {
    response.writeHead(200, { "Content-Encoding": "gzip" });
    const more = () => !response.destroyed && response.write(spaces, () => (sent++ < 100 ? more() : response.destroy()));
    more();
  });
  await assert.rejects(one(url).version(), { name: "Internal", message: /has more than 536870912 bytes/ });
  assert.ok(sent < 100);
});

test("answers in odd forms are errors of the client", async (t) => {
  const deep = `{"a":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
  const client = async (body, status = 200) => one(await serve(t, (_, response) => response.writeHead(status).end(body)));
  await assert.rejects((await client(deep)).version(), AgentboxError);
  for (const detail of ['[{"loc": 5}, 5, null]', "[null]", "{}"]) {
    await assert.rejects((await client(`{"detail": ${detail}, "code": []}`, 422)).version(), { name: "InvalidArgument", status: 422 });
  }
  for (const page of ["null", "[]", '{"items": 5}', '{"items": null, "next_cursor": null}']) {
    await assert.rejects((await client(page)).list().all(), { name: "Internal" });
  }
});

test("a page that leads to itself ends the list", async (t) => {
  let asked = 0;
  const url = await serve(t, (_, response) => (asked++, response.end('{"items": [], "next_cursor": "a"}')));
  await assert.rejects(one(url).list().all(), { name: "Internal" });
  assert.equal(asked, 2);
});

test("a name is never another path", async (t) => {
  const seen = [];
  const url = await serve(t, (request, response) => (seen.push(request.url), response.end(info)));
  for (const name of ["", ".", ".."]) {
    await assert.rejects(async () => one(url).get(name), { name: "InvalidArgument" });
    await assert.rejects(async () => one(url).volumes.remove(name), { name: "InvalidArgument" });
    await assert.rejects(async () => one(url).keys.revoke(name), { name: "InvalidArgument" });
  }
  assert.deepEqual(seen, []);
});

test("messages that nobody reads are not kept without end", async (t) => {
  const server = createServer((_, response) => response.end(info));
  let sent = 0;
  const over = new Promise((resolve) =>
    server.on("upgrade", (request, socket) => {
      const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
      const frame = Buffer.concat([Buffer.from([0x82, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 0]), Buffer.alloc(1 << 20)]);
      const more = () => !socket.destroyed && sent++ < 1000 && socket.write(frame, more);
      more();
      socket.on("error", () => undefined);
      socket.on("data", ([first]) => first === 0x88 && socket.destroy()); // a close
      socket.on("close", resolve);
    }),
  );
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.close(), server.closeAllConnections()));
  const box = await boxOf(`http://127.0.0.1:${server.address().port}`);
  const connection = await box.connect(80);
  await over;
  assert.ok(sent < 1000);
  await assert.rejects(async () => {
    for await (const _ of connection.readable) {
      // what was kept
    }
  }, { name: "ConnectionError" });
});
