// What the tests share.
import { createServer } from "node:http";

import { Client } from "@agentbox/client";

/** A server that answers each request as it is told. */
export async function serve(t, answer) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())));
  return `http://127.0.0.1:${server.address().port}`;
}

/** A box of a server that never was asked for one. */
export async function boxOf(url, options = {}) {
  const client = new Client({ url, fetch: options.fetch, retries: options.retries });
  return client.get("box");
}

export const info = JSON.stringify({ id: "box", short_id: "box", status: "running", labels: {} });

/** Waits until check gives something. */
export async function until(what, check) {
  for (const end = Date.now() + 60_000; ; ) {
    const found = await check();
    if (found) {
      return found;
    }
    if (Date.now() > end) {
      throw new Error(`there is no ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
