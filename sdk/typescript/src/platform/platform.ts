/** What a program's surroundings have to give. */
export interface Platform {
  fetch: typeof globalThis.fetch;
  /** A variable of the environment; undefined: there is none, or no environment. */
  env(name: string): string | undefined;
  /** A text that nobody else has. */
  unique(): string;
  /** Opens a WebSocket that brings the key, if there is one. */
  webSocket(url: string, key: string | undefined): WebSocket;
  /** Whether a request's body may be sent while it is made. */
  streamsUploads: boolean;
}
