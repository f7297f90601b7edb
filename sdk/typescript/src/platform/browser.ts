// What pages and workers have. Bundlers put it in the place of node.ts, as the field
// "browser" of package.json tells them.
import type { Platform } from "./platform.js";

export const platform: Platform = {
  fetch: (input, init) => globalThis.fetch(input, init),
  env: () => undefined,
  unique() {
    // randomUUID is there on secure pages only.
    return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  },
  // A page can set no headers here: the server takes the first protocol, and reads
  // the key from the second.
  webSocket: (url, key) => new WebSocket(url, key ? ["agentbox", `agentbox.key.${key}`] : []),
  streamsUploads: false, // browsers do it over HTTP/2 only
};
