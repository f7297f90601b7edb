export * from "./gen/sandbox/v1/sandbox_pb.js";
export { type ExecOptions, Sandbox, type SandboxConnection, type SandboxOptions } from "./sandbox.js";

export { type BackgroundOptions, Box } from "./box.js";
export type { Data, Progress } from "./bytes.js";
export { type AuditOptions, Client, type Images, type Keys, type ListOptions, type Secrets, type Volumes } from "./client.js";
export type { BytesOptions, CommandEvent, CommandLine, CommandOptions, CommandStream, ExecEnd, Result } from "./commands.js";
export * from "./errors.js";
export type { AsUser, Files, GlobOptions, ReadOptions, SearchOptions, WatchEvent, WriteOptions } from "./files.js";
export type { ClientOptions, Pages } from "./http.js";
export type { Network as BoxNetwork } from "./network.js";
export type { Packages } from "./packages.js";
export type { PortConnection } from "./ports.js";
export type { Offset, Process } from "./process.js";
export type { Sessions } from "./sessions.js";
export type { Terminal, TerminalAgain, TerminalOptions } from "./terminal.js";
export type * from "./types.js";
