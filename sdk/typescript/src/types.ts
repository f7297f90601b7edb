// Made from docs/openapi.json by scripts/types.mjs: change that, and run `npm run generate`.

export interface AuditRecord {
  /** Such as create, exec, file_read, key_revoke, auth_refused. */
  action: string;
  details: Record<string, string>;
  keyId: string;
  owner: string;
  requestId: string;
  /** ok, or the code of the error. */
  result: string;
  sandbox: string;
  time: string;
}

export interface ChangeNetworkOptions {
  /** Hosts to put on the list, in any form that allow takes. Those that are there stay. */
  add?: string[];
  /** End connections that are not allowed any more. */
  cut?: boolean;
  /** Hosts to take off the list, as they stand on it. */
  remove?: string[];
}

export interface Changed {
  changed: number;
}

export interface CommandRequest {
  /** Columns of the terminal; default 80. */
  cols?: number;
  /** A command line for the shell, or a list: a program and its arguments. */
  command: string | string[];
  /** Don't wait for it, and let it run on when its client is gone. */
  detach?: boolean;
  /** Added to the sandbox's environment. */
  env?: Record<string, string>;
  /** What is kept of each stream, in bytes. Default 10 MB, at most 100 MB; a stream of events has no default. */
  maxOutput?: number | string;
  /** What becomes of it when its client is gone: kill it, unless somebody follows it within 5 s (kill), kill it at once (kill_now), or keep it. Default: keep; for a stream that is not detached kill, with the frames of the process API kill_now. */
  onDisconnect?: "kill" | "kill_now" | "keep";
  /** Leave its input open behind stdin: more comes by execs/{exec}/stdin, or from a terminal. */
  openStdin?: boolean;
  /** Rows of the terminal; default 24. */
  rows?: number;
  /** Run it in this shell session; its directory, user and environment hold then. */
  session?: string;
  /** Its input, as a text. A request has at most 16 MiB; more goes to the stdin of the command. */
  stdin?: string;
  /** Its input, as bytes, instead of stdin. */
  stdinBase64?: string;
  /** After it the command and all that it started is killed. Default: an hour, at most 24 hours; for a detached command none. */
  timeout?: number | string;
  /** Give it a terminal; stderr is then part of stdout. */
  tty?: boolean;
  /** Who runs it, a name or number, optionally with :group; default: the sandbox's user. */
  user?: string;
  /** Where; default: the sandbox's directory. */
  workdir?: string;
}

export interface Connection {
  /** Address that was dialled, or refused. */
  address: string;
  /** Why it was denied or failed, for programs. */
  code: string;
  /** Seconds. */
  duration: number;
  /** Name that was asked for; empty if it was an address. */
  host: string;
  intercepted: boolean;
  /** How the program asked: connect, http, socks, transparent; empty in an entry that only has omitted, or of a connection that nobody read since there were too many. */
  kind: string;
  /** Of a request that was seen. */
  method: string;
  /** Not 0: so many more connections have no entry, since there were too many at once. */
  omitted: number;
  /** It had not ended when this was written. Another entry with the same time comes at its end, or while it stays open. */
  open: boolean;
  /** Without the query. */
  path: string;
  port: number;
  /** The same in words. */
  reason: string;
  /** Bytes. */
  received: number;
  /** What allowed it. */
  rule: string;
  /** Bytes. */
  sent: number;
  status: number;
  /** When it began. */
  time: string;
  /** allowed, denied or failed. */
  verdict: string;
}

export interface Copied {
  /** How many files, directories and links were copied. */
  entries: number;
  skipped: LeftOut;
}

export interface SandboxEvent {
  /** More in words; may be empty. */
  detail: string;
  /** Why; may be empty. */
  reason: string;
  /** Grows with every event of the server. */
  seq: number;
  /** Its state after that. */
  status: string;
  time: string;
  /** state: its state changed; failure: that was tried and failed; adopted: a server that was started anew took it over. */
  type: "state" | "failure" | "update" | "oom" | "adopted";
}

export interface ExecInfo {
  /** The program and its arguments. */
  command: string[];
  execId: string;
  /** Of its first process, in the sandbox; 0 while it is queued. */
  pid: number;
  /** null: it has not ended. Lists leave its output out. */
  result: ExecResult | null;
  startedAt: string;
  /** queued: as many run as may. */
  state: "queued" | "running" | "ended";
  stderr: Kept;
  /** Which output is still there. */
  stdout: Kept;
  tty: boolean;
  user: string;
}

export interface ExecResult {
  /** Of the command and all that it started, as far as known. */
  cpuTime: number;
  /** Seconds; also a text such as 1m30s. */
  duration: number;
  execId: string;
  /** What it exited with; 128+n after signal n, -1 after a time-out, 137 out of memory; 126 and 127 for a program that can't be run or is not there. null: it runs. */
  exitCode: number | null;
  oomKilled: boolean;
  /** stdout and stderr, in the order of arrival. */
  output: string;
  /** Of its biggest process, in bytes; 0: not known, as when it is less than what the sandbox's own agent used, some 10 MB. */
  peakMemory: number;
  /** Why it ended, in words, if exit_code does not say it all. */
  reason: string;
  /** The signal that ended it. */
  signal: number | null;
  stderr: string;
  stdout: string;
  timedOut: boolean;
  truncated: Truncated;
}

export interface FieldError {
  /** What was sent there, if it is short. */
  input: unknown;
  /** Where: body, query or path, then names and positions. */
  loc: unknown[];
  /** What is wrong, in words. */
  msg: string;
  /** What is wrong, for programs, such as missing or string_type. */
  type: string;
}

export interface FileInfo {
  atime: string;
  ctime: string;
  gid: number;
  group: string;
  /** Permissions, octal, with setuid, setgid and sticky. */
  mode: string;
  mtime: string;
  name: string;
  nlink: number;
  path: string;
  /** The path exactly, if it is no UTF-8. */
  pathBase64?: string;
  size: number;
  /** Where a symlink leads. */
  target: string;
  type: "file" | "dir" | "symlink" | "fifo" | "socket" | "device";
  uid: number;
  /** Empty: the sandbox has no name for it. */
  user: string;
}

export interface FoundFiles {
  items: FileInfo[];
  /** Directories that the user may not read. */
  skipped: number;
  /** Why there may be more; empty: that is all. */
  truncated: "" | "count" | "size" | "time";
}

export interface FoundLines {
  /** That were left out because they are binary. */
  binary: number;
  /** That were searched. */
  files: number;
  items: FoundLine[];
  /** Of which only the first 64 KiB were searched. */
  longLines: number;
  /** Files and directories that were left out otherwise. */
  skipped: number;
  /** Why there may be more; empty: that is all. */
  truncated: "" | "count" | "size" | "time";
}

export interface ImageInfo {
  /** When the server got or made it. */
  createdAt: string;
  digest: string;
  name: string;
  /** Bytes. */
  size: number;
  /** Where it came from: recipe, tar, archive or registry. */
  source: string;
  /** Who commands run as; empty: 1000. */
  user: string;
  /** Where commands run; empty: /. */
  workdir: string;
}

export interface Isolation {
  backend: string;
  /** Limits that hold whatever the sandbox does. */
  enforced: string[];
  /** Capabilities on the host. */
  hostCapabilities: string[];
  /** Who root of the sandbox is on the host; no other process has this user. */
  hostUser: number;
  limits: SandboxLimits;
  /** How it works on this host, in words. */
  mode: string;
  network: NetworkPolicy;
  /** Limits that this server can't enforce. */
  notEnforced: string[];
  /** Whether a filter bounds the system calls that reach the host. */
  seccomp: boolean;
  /** Of what isolates. */
  version: string;
}

export interface Kept {
  end: number;
  first: number;
}

export interface ApiKey {
  admin: boolean;
  createdAt: string;
  /** Names the key, in the audit log, too. */
  id: string;
  /** Your word for it. */
  name: string;
  /** Whose things the key reaches. */
  owner: string;
  /** Since when it lets nobody in; null: it is good. */
  revokedAt: string | null;
}

export interface LeftOut {
  /** The first hundred. */
  first: LeftOutFile[];
  total: number;
}

export interface LeftOutFile {
  path: string;
  /** fifo, socket, device, denied (the user may not read it), size or count. */
  reason: string;
}

export interface SandboxLimits {
  /** Cores. */
  cpus: number;
  /** Bytes of written files, /tmp included. */
  disk: number;
  /** Bytes. */
  memory: number;
  /** Processes and threads. */
  pids: number;
  /** Bytes of /dev/shm. */
  shm: number;
}

export interface FoundLine {
  after: string[];
  before: string[];
  /** text is not the whole line. */
  cut: boolean;
  end: number;
  /** From 1. */
  line: number;
  /** Of the line in the file, in bytes. */
  offset: number;
  path: string;
  /** Of the first match in the line, in bytes. */
  start: number;
  text: string;
  /** Where text begins in the line, in bytes. */
  textStart: number;
}

export interface VolumeMount {
  name: string;
  /** Where it is in the sandbox. */
  path: string;
  readOnly?: boolean;
}

export interface NetworkPolicy {
  /** What it may reach, with the mode allowlist. */
  allow: string[];
  /** Hosts whose TLS the proxy ends itself. */
  intercept: string[];
  mode: "none" | "allowlist" | "full";
  /** Programs that take no proxy reach allowed names, too. */
  resolver: boolean;
}

export interface NetworkRequest {
  /** How often it was asked for. */
  count: number;
  firstAt: string;
  host: string;
  id: string;
  lastAt: string;
  port: number;
}

export interface NetworkState {
  /** What it may reach, with the mode allowlist. */
  allow: string[];
  /** Hosts whose TLS the proxy ends itself. */
  intercept: string[];
  mode: "none" | "allowlist" | "full";
  /** What it was denied and nobody decided on since, the oldest first; at most 64, while it runs. */
  requests: NetworkRequest[];
  /** Programs that take no proxy reach allowed names, too. */
  resolver: boolean;
}

export interface NewApiKey {
  admin: boolean;
  createdAt: string;
  /** Names the key, in the audit log, too. */
  id: string;
  /** The key itself. This is the only time that it is shown. */
  key: string;
  /** Your word for it. */
  name: string;
  /** Whose things the key reaches. */
  owner: string;
  /** Since when it lets nobody in; null: it is good. */
  revokedAt: string | null;
}

export interface NewNetworkPolicy {
  /** Hosts (api.example.com), all below one (*.example.com), hosts with a port (api.example.com:8443), addresses, ranges (192.0.2.0/24), requests (GET api.example.com/v1/*), and presets such as python, node, git and default. Without a port: 80 and 443. */
  allow?: string[];
  /** Hosts, as in allow but without requests, whose TLS the proxy ends itself with a certificate of the sandbox's own authority, which programs in it trust: so it sees and records method and path of each request. It allows nothing. Hosts of which only some requests over TLS are allowed are intercepted in any case. */
  intercept?: string[];
  /** Default: allowlist if there is anything in allow, else none. The operator may not allow full. */
  mode?: "none" | "allowlist" | "full";
  /** Let programs that take no proxy reach allowed names, too: default true. Servers in the sandbox that wait on port 80 or 443 of all addresses must then set SO_REUSEADDR, as most do. */
  resolver?: boolean;
}

export interface CreateOptions {
  /** Cores, such as 0.5. */
  cpus?: number;
  /** Of written files, /tmp included. */
  disk?: number | string;
  /** Added to the image's environment. */
  env?: Record<string, string>;
  /** Seconds; also a text such as 1m30s. */
  idleTimeout?: number | string;
  /** Name of an image that the server has. */
  image?: string;
  labels?: Record<string, string>;
  /** Seconds; also a text such as 1m30s. */
  lifetime?: number | string;
  /** Bytes; also a text such as 512m or 2g, binary. */
  memory?: number | string;
  /** Your name for it, unique among your sandboxes. */
  name?: string;
  network?: NewNetworkPolicy;
  networkEnabled?: boolean;
  /** What becomes of it after idle_timeout. Default: destroy. */
  onIdle?: "destroy" | "stop";
  /** Processes and threads. */
  pids?: number;
  /** Ports of the sandbox that the server's machine offers on its loopback interface, for as long as the sandbox runs. */
  ports?: PublishedPort[];
  /** Programs in it find the process API on 127.0.0.1:2024: POST /exec, /exec/stream, /file/write and /file/read, GET /health. */
  processApi?: boolean;
  /** Your secrets that its requests may have put in: see POST /secrets. It has a placeholder for each, in a variable of that name. */
  secrets?: string[];
  /** Of /dev/shm. */
  shm?: number | string;
  /** Whose storage it has on /workspace and /mnt/user-data/outputs: one among yours, made on first use and shared by all your sandboxes that name it. */
  tenantId?: string;
  /** Who commands run as, instead of the image's user. */
  user?: string;
  /** Your volumes that it is to have. One to which it may write is had by no other sandbox. */
  volumes?: VolumeMount[];
  /** Where commands run, instead of the image's directory. */
  workdir?: string;
}

export interface OwnedNetworkRequest {
  /** How often it was asked for. */
  count: number;
  firstAt: string;
  host: string;
  id: string;
  lastAt: string;
  owner: string;
  port: number;
  /** Id of the sandbox, by which an admin decides. */
  sandbox: string;
}

export interface ListeningPort {
  /** The address that it listens on. */
  address: string;
  /** 0: not known. */
  pid: number;
  port: number;
  /** The name that it gave itself; empty: not known. */
  process: string;
  uid: number;
}

export interface PublishedPort {
  /** Port in the sandbox. */
  guest: number;
  /** Port on the host's loopback interface, in the operator's range; 0: any that is free. */
  host?: number;
}

export interface SandboxInfo {
  createdAt: string;
  /** Why it is in this state, if it is not as it should be, such as idle or failure. */
  errorReason: string | null;
  /** When it is destroyed; null: never. */
  expiresAt: string | null;
  /** 64 hex digits. The short id, the label and the name are accepted in its place everywhere. */
  id: string;
  /** Seconds without use; null: it may be idle for ever. */
  idleTimeout: number | null;
  image: string;
  /** An id that is fit for host names. */
  label: string;
  labels: Record<string, string>;
  lastActivityAt: string;
  limits: SandboxLimits;
  /** Your name for it; null: none. */
  name: string | null;
  network: NetworkPolicy;
  /** Limits that this server can't enforce. */
  notEnforced: string[];
  /** What becomes of it after idle_timeout. */
  onIdle: "destroy" | "stop";
  ports: PublishedPort[];
  /** Programs in it find the process API on 127.0.0.1:2024. */
  processApi: boolean;
  /** Names of the secrets that its requests may have put in. */
  secrets: string[];
  /** The first 12 digits of the id. */
  shortId: string;
  startedAt: string | null;
  status: "creating" | "running" | "paused" | "suspended" | "stopping" | "stopped" | "starting" | "error" | "destroying";
  stoppedAt: string | null;
  /** Whose storage it has; null: nobody's. */
  tenantId: string | null;
  /** Who commands run as. */
  user: string;
  volumes: VolumeMount[];
  /** Where commands run. */
  workdir: string;
}

export interface SecretInfo {
  createdAt: string;
  /** What the header becomes, with {} where the value goes. Empty: the value takes the place of the placeholder. */
  format: string;
  /** Header that it stands in. */
  header: string;
  /** Hosts whose requests it is put into. */
  hosts: string[];
  name: string;
  /** When it got its value. */
  updatedAt: string;
}

export interface SetNetworkOptions {
  /** Hosts (api.example.com), all below one (*.example.com), hosts with a port (api.example.com:8443), addresses, ranges (192.0.2.0/24), requests (GET api.example.com/v1/*), and presets such as python, node, git and default. Without a port: 80 and 443. */
  allow?: string[];
  /** End connections that are not allowed any more. Without it only new ones are judged. */
  cut?: boolean;
  /** Hosts, as in allow but without requests, whose TLS the proxy ends itself with a certificate of the sandbox's own authority, which programs in it trust: so it sees and records method and path of each request. It allows nothing. Hosts of which only some requests over TLS are allowed are intercepted in any case. */
  intercept?: string[];
  /** Default: allowlist if there is anything in allow, else none. The operator may not allow full. */
  mode?: "none" | "allowlist" | "full";
  /** Let programs that take no proxy reach allowed names, too: default true. Servers in the sandbox that wait on port 80 or 443 of all addresses must then set SO_REUSEADDR, as most do. */
  resolver?: boolean;
}

export interface SecretOptions {
  /** What that header becomes, with {} where the value goes, such as Bearer {}. Default: the value takes the place of the placeholder, and all around it stays; in credentials of the Basic scheme, too. */
  format?: string;
  /** Header that it stands in. Default: Authorization. */
  header?: string;
  /** Hosts that may have it: a name, all names below one (*.example.com) or an address, each with a port or on 80 and 443. It goes over TLS only. */
  hosts: string[];
  /** Name of the secret and of the variable that sandboxes have: letters, digits and _, not beginning with a digit. */
  name: string;
  /** The secret itself: 8 bytes to 4 KiB of UTF-8 without control characters. It is never shown again. */
  value: string;
}

export interface ShellSession {
  /** The command that its shell is. */
  execId: string;
  name: string;
  startedAt: string;
}

export interface Stats {
  /** Seconds of CPU time since its start. */
  cpu: number;
  /** Bytes that its files take on the host's disk. */
  disk: number;
  /** Bytes; 0: this server can't tell. */
  memory: number;
  /** Bytes. */
  networkIn: number;
  /** Bytes. */
  networkOut: number;
  /** How often the memory limit was reached. */
  oomKills: number;
  /** Most bytes at one time; 0: this server can't tell. */
  peakMemory: number;
  /** Tasks on the host; the isolation itself has some. */
  processes: number;
  time: string;
}

export interface Truncated {
  stderr: boolean;
  stdout: boolean;
}

export interface Changes {
  /** Cores, such as 0.5. */
  cpus?: number;
  /** Of written files, /tmp included. */
  disk?: number | string;
  /** Seconds; also a text such as 1m30s. */
  idleTimeout?: number | string;
  /** Labels to set; null removes one. Others stay. */
  labels?: Record<string, string | null>;
  /** Seconds; also a text such as 1m30s. */
  lifetime?: number | string;
  /** Bytes; also a text such as 512m or 2g, binary. */
  memory?: number | string;
  /** Processes and threads. */
  pids?: number;
  /** Of /dev/shm. */
  shm?: number | string;
}

export interface Version {
  /** Of this API. */
  api: string;
  /** Of the product. */
  version: string;
}

export interface VolumeInfo {
  createdAt: string;
  /** How the server keeps it: as a file system in a file, as a directory under a quota, as a directory without a limit. */
  kind: "image" | "quota" | "directory";
  name: string;
  /** disk, if the server can't hold it to its size. */
  notEnforced: string[];
  /** Bytes that it may take, the file system's own included. */
  size: number;
  /** Bytes that it takes on the server's disk. In lists it is left out. */
  used?: number;
  /** Ids of the sandboxes that have it, stopped ones included. */
  usedBy: string[];
}

/** Fields whose value has names of the user's own. */
export const maps: ReadonlySet<string> = new Set(["details","env","labels"]);
