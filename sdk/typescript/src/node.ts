/// <reference lib="esnext.disposable" preserve="true" />
// What only Node has: gRPC over HTTP/2, local files, listeners.
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";

import type { Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import type { Box } from "./box.js";
import type { ReadOptions, WriteOptions } from "./files.js";
import { platform } from "./platform/node.js";
import { bearer } from "./sandbox.js";

/**
 * Carries the calls of SandboxService, or of a Sandbox, by gRPC over HTTP/2. The key is
 * AGENTBOX_API_KEY of the environment unless one is given.
 */
export function grpcTransport(baseUrl = "http://localhost:50051", apiKey?: string): Transport {
  const key = apiKey ?? platform.env("AGENTBOX_API_KEY");
  return createGrpcTransport({ baseUrl, interceptors: key ? [bearer(key)] : [] });
}

/** Writes a local file to a path of a sandbox. */
export async function upload(box: Box, local: string, path: string, options: WriteOptions = {}): Promise<void> {
  const { onProgress, ...rest } = options;
  const { size } = await stat(local);
  await box.files.write(path, createReadStream(local), { ...rest, onProgress: onProgress && ((done) => onProgress(done, size)) });
}

/** Reads a file of a sandbox to a local one, which changes as a whole or not at all. */
export async function download(box: Box, path: string, local: string, options: ReadOptions = {}): Promise<void> {
  const part = `${local}.${platform.unique()}.part`;
  try {
    const stream = await box.files.readStream(path, options);
    await pipeline(Readable.fromWeb(stream as Parameters<typeof Readable.fromWeb>[0]), createWriteStream(part, { flags: "wx" }));
    await rename(part, local);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
}

/** A port of this machine that leads to one of a sandbox. */
export interface Forward extends AsyncDisposable {
  host: string;
  port: number;
  close(): Promise<void>;
}

/** Listens on a port of this machine's loopback interface, a free one unless it is named, and leads to a port of a sandbox. */
export async function forward(box: Box, port: number, options: { host?: string; port?: number } = {}): Promise<Forward> {
  const open = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    open.add(socket);
    socket.on("close", () => open.delete(socket));
    carry(box, port, socket).catch(() => socket.destroy()); // its client sees that it broke
  });
  await listening(server, options.port ?? 0, options.host ?? "127.0.0.1");
  const { address, port: local } = server.address() as AddressInfo;
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      open.forEach((socket) => socket.destroy());
    });
  return { host: address, port: local, close, [Symbol.asyncDispose]: close };
}

function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

async function carry(box: Box, port: number, socket: Socket): Promise<void> {
  const connection = await box.connect(port);
  const readable = Readable.fromWeb(connection.readable as Parameters<typeof Readable.fromWeb>[0]);
  await Promise.all([pipeline(socket, Writable.fromWeb(connection.writable)), pipeline(readable, socket)]);
}
