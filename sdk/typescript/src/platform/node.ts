import { randomUUID } from "node:crypto";

import { Agent, fetch, WebSocket } from "undici";

import type { Platform } from "./platform.js";

/**
 * Node's own fetch gives up on an answer that does not begin, or pauses, within five
 * minutes; commands take longer.
 */
const dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 });

export const platform: Platform = {
  // Their types differ in names only, as those of WebSockets do.
  fetch: ((input: string, init?: object) => fetch(input, { ...init, dispatcher })) as unknown as typeof globalThis.fetch,
  env: (name) => process.env[name],
  unique: randomUUID,
  webSocket(url, key) {
    const headers: Record<string, string> = key ? { Authorization: `Bearer ${key}` } : {};
    // The types of undici's and of the browser's WebSocket differ in names only.
    return new WebSocket(url, { headers, dispatcher }) as unknown as globalThis.WebSocket;
  },
  streamsUploads: true,
};
