// A page of another origin uses a server: headless Chromium, and what bundlers make of the package.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";

import { build } from "esbuild";
import { chromium } from "playwright-core";

import { closed, keyed, open, origin } from "./server.mjs";

const executablePath = process.env.AGENTBOX_TEST_CHROMIUM ?? "/usr/bin/chromium";
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** The example, or another page, as one file for browsers. A module of Node in it would be an error. */
async function bundle(page = "examples/browser/page.ts") {
  const { outputFiles, metafile } = await build({
    entryPoints: [page], bundle: true, format: "esm", platform: "browser", write: false, metafile: true, logLevel: "silent",
  });
  return { code: outputFiles[0].text, inputs: Object.keys(metafile.inputs) };
}

test("a bundle for browsers has nothing of Node", async () => {
  const { code, inputs } = await bundle();
  assert.deepEqual(inputs.filter((name) => /undici|connect-node|platform\/node/.test(name)), []);
  assert.ok(!/["']node:/.test(code));
  assert.ok(code.length < 1 << 20, `${code.length} bytes`);
});

test("C8 a preflight of an allowed origin", open.needed, async () => {
  const ask = (url, from, path, method) =>
    fetch(url + path, { method: "OPTIONS", headers: { Origin: from, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,content-type,x-grpc-web,x-user-agent,idempotency-key" } });
  for (const [path, method] of [["/sandbox.v1.SandboxService/Exec", "POST"], ["/api/v1/sandboxes/x/files", "PUT"]]) {
    for (const { url } of [open, keyed]) {
      const { status, headers } = await ask(url, origin, path, method);
      assert.deepEqual([status, headers.get("Access-Control-Allow-Origin")], [204, origin]);
      assert.ok(headers.get("Access-Control-Allow-Methods").includes(method));
      const allowed = headers.get("Access-Control-Allow-Headers").toLowerCase();
      for (const name of ["authorization", "content-type", "x-grpc-web", "x-user-agent", "grpc-timeout", "connect-protocol-version", "x-api-key", "idempotency-key"]) {
        assert.ok(allowed.includes(name), name);
      }
    }
    for (const [url, from] of [[closed.url, origin], [open.url, "http://127.0.0.1:1"], [keyed.url, "null"]]) {
      const { headers } = await ask(url, from, path, method);
      assert.equal(headers.get("Access-Control-Allow-Origin"), null);
    }
  }
});

const needed = existsSync(executablePath) ? open.needed : { skip: `it needs Chromium at ${executablePath}` };

describe("a page", needed, () => {
  let pages, browser, page;
  before(async () => {
    const scripts = { "/page.js": await bundle(), "/grpc-web.js": await bundle("test/grpc-web.page.mjs") };
    pages = createServer((request, response) => {
      const script = scripts[request.url];
      response.writeHead(200, { "Content-Type": script ? "text/javascript" : "text/html" });
      response.end(script ? script.code : '<!doctype html><script type="module" src="page.js"></script><script type="module" src="grpc-web.js"></script>');
    });
    const { hostname, port } = new URL(origin);
    await new Promise((resolve) => pages.listen(Number(port), hostname, resolve));
    browser = await chromium.launch({ executablePath, args, timeout: 60_000 });
    page = await browser.newPage();
    await page.goto(origin);
    await page.waitForFunction(() => "native" in globalThis && "refused" in globalThis);
  });
  after(async () => {
    await browser?.close();
    await new Promise((resolve) => (pages.close(resolve), pages.closeAllConnections()));
  });

  const run = (name, ...of) => page.evaluate(([name, of]) => globalThis[name](...of), [name, of]);
  const servers = { "without keys": { url: open.url }, "with a key": { url: keyed.url, apiKey: keyed.key } };

  for (const [name, server] of Object.entries(servers)) {
    test(`C1 the class Sandbox in a browser, ${name}`, async () => {
      assert.deepEqual(await run("sandbox", server), {
        stdout: "hello\n", exitCode: 3, streamed: ["stdout one\n", "stdout two\n", "exit "], read: "ü", python: "42\n", destroyed: true,
      });
    });

    test(`the service by connect-web in a browser, ${name}`, async () => {
      assert.deepEqual(await run("service", server), { stdout: "hi\n", listed: true, success: true });
    });

    for (const format of ["text", "binary"]) {
      test(`the service by grpc-web in a browser, its ${format} format, ${name}`, async () => {
        assert.deepEqual(await run("unary", server, format), { stdout: "hello\n", exitCode: 3, success: true, same: true, listed: true, unknown: "5 Session not found" });
      });
    }

    test(`a stream by grpc-web in a browser, ${name}`, async () => {
      assert.deepEqual(await run("stream", server), { came: ["stdout one\n", "stderr two\n", "exit 4"], status: 0 });
    });

    test(`the native client in a browser, ${name}`, async () => {
      assert.deepEqual(await run("native", server), {
        stdout: "hello\n", exitCode: 3, streamed: ["start", "stdout", "stdout", "exit"], read: [0, 255], told: 2, typed: "typed", missing: "NotFound", shown: "got abc 7",
      });
    });
  }

  test("a server that does not allow the page's origin refuses it", async () => {
    for (const name of ["sandbox", "service", "native"]) {
      await assert.rejects(run(name, { url: closed.url }), /Failed to fetch/, name);
    }
    assert.equal((await fetch(`${closed.url}/api/v1/sandboxes`).then((answer) => answer.json())).items.length, 0, "nothing was made");
  });

  test("a wrong key is told to a page", async () => {
    await assert.rejects(run("native", { url: keyed.url, apiKey: "abx_wrong" }), /Unauthenticated/);
    await assert.rejects(run("sandbox", { url: keyed.url }), /unauthenticated/);
    assert.match(await run("refused", { url: keyed.url }), /^16 .*API key/);
  });
});
