import { bodyOf, type Data, type Progress, wholeArchive } from "./bytes.js";
import { Box } from "./box.js";
import { archiveType } from "./files.js";
import { type Call, type ClientOptions, Http, Pages, type Query, segment } from "./http.js";
import type {
  ApiKey,
  AuditRecord,
  CreateOptions,
  ImageInfo,
  NetworkState,
  NewApiKey,
  OwnedNetworkRequest,
  SandboxInfo,
  SecretInfo,
  SecretOptions,
  Version,
  VolumeInfo,
} from "./types.js";

/** Which sandboxes are listed. */
export interface ListOptions {
  /** Only with these labels. */
  labels?: Record<string, string>;
  /** Only in one of these states. */
  status?: SandboxInfo["status"][];
  /** Only the one of this name. */
  name?: string;
}

/** Which records are listed. */
export interface AuditOptions {
  sandbox?: string;
  action?: string;
  since?: Date | string;
  order?: "newest" | "oldest";
  /** Of all owners; an admin may. */
  all?: boolean;
}

/** An agentbox server. */
export class Client {
  readonly images: Images;
  readonly volumes: Volumes;
  readonly secrets: Secrets;
  readonly keys: Keys;
  private readonly http: Http;

  constructor(options: ClientOptions = {}) {
    this.http = new Http(options);
    this.images = new Images(this.http);
    this.volumes = new Volumes(this.http);
    this.secrets = new Secrets(this.http);
    this.keys = new Keys(this.http);
  }

  /** Makes a sandbox. Commands can run when it returns. */
  async create(options: CreateOptions & { idempotencyKey?: string; signal?: AbortSignal } = {}): Promise<Box> {
    const { idempotencyKey, signal, ...json } = options;
    const call: Call = { method: "POST", path: "/sandboxes", json, key: idempotencyKey ?? this.http.unique(), signal };
    return new Box(this.http, await this.http.json<SandboxInfo>(call));
  }

  /** The sandbox of an id, short id, label or name. */
  async get(id: string): Promise<Box> {
    return new Box(this.http, await this.http.json<SandboxInfo>({ method: "GET", path: `/sandboxes/${segment(id)}` }));
  }

  /** Your sandboxes, the oldest first. */
  list(options: ListOptions = {}): Pages<Box> {
    const { labels = {}, ...rest } = options;
    const query: Query = { ...rest, label: Object.entries(labels).map(([name, value]) => `${name}=${value}`) };
    return new Pages<Box>(this.http, { method: "GET", path: "/sandboxes", query }, (info: SandboxInfo) => new Box(this.http, info));
  }

  /** Who did what. */
  audit(options: AuditOptions = {}): Pages<AuditRecord> {
    const { since, ...rest } = options;
    const query: Query = { ...rest, since: since instanceof Date ? since.toISOString() : since };
    return new Pages<AuditRecord>(this.http, { method: "GET", path: "/audit", query });
  }

  /** What sandboxes of all owners were denied and nobody decided on; an admin may ask. */
  networkRequests(): Pages<OwnedNetworkRequest> {
    return new Pages<OwnedNetworkRequest>(this.http, { method: "GET", path: "/network/requests" });
  }

  /** Decides on a host that a sandbox was denied, by the ids of both; an admin may. */
  decide(sandbox: string, request: string, decision: "allow" | "deny"): Promise<NetworkState> {
    const path = `/sandboxes/${segment(sandbox)}/network/requests/${segment(request)}`;
    return this.http.json<NetworkState>({ method: "POST", path, json: { decision } });
  }

  /** Which version answers. */
  version(): Promise<Version> {
    return this.http.json<Version>({ method: "GET", path: "/version" });
  }
}

/** The images of a server. */
export class Images {
  constructor(private readonly http: Http) {}

  list(): Pages<ImageInfo> {
    return new Pages<ImageInfo>(this.http, { method: "GET", path: "/images" });
  }

  get(name: string): Promise<ImageInfo> {
    return this.http.json<ImageInfo>({ method: "GET", path: `/images/${segment(name)}` });
  }

  /** Gets an image from a registry; an admin may. */
  pull(reference: string, options: { platform?: string } = {}): Promise<ImageInfo> {
    return this.http.json<ImageInfo>({ method: "POST", path: "/images/pull", json: { reference, ...options }, key: this.http.unique() });
  }

  /** Removes an image; an admin may. */
  async remove(name: string): Promise<void> {
    await this.http.done({ method: "DELETE", path: `/images/${segment(name)}` });
  }
}

/** Files that outlive sandboxes. */
export class Volumes {
  constructor(private readonly http: Http) {}

  create(name: string, options: { size?: number | string } = {}): Promise<VolumeInfo> {
    return this.http.json<VolumeInfo>({ method: "POST", path: "/volumes", json: { name, ...options }, key: this.http.unique() });
  }

  list(): Pages<VolumeInfo> {
    return new Pages<VolumeInfo>(this.http, { method: "GET", path: "/volumes" });
  }

  get(name: string): Promise<VolumeInfo> {
    return this.http.json<VolumeInfo>({ method: "GET", path: `/volumes/${segment(name)}` });
  }

  async remove(name: string): Promise<void> {
    await this.http.done({ method: "DELETE", path: `/volumes/${segment(name)}` });
  }

  /** All files of a volume as a tar, or with gzip as a tar.gz. */
  async readArchive(name: string, options: { gzip?: boolean; signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    const call: Call = { method: "GET", path: `/volumes/${segment(name)}/archive`, headers: { Accept: archiveType(options.gzip) }, signal: options.signal };
    const response = await this.http.send(call);
    return wholeArchive(response.body ?? new Blob([]).stream(), options.gzip);
  }

  /** Unpacks a tar, or with gzip a tar.gz, into a volume that no sandbox has. */
  async writeArchive(name: string, data: Data, options: { gzip?: boolean; onProgress?: Progress; signal?: AbortSignal } = {}): Promise<void> {
    const { gzip, onProgress, signal } = options;
    const headers = { "Content-Type": archiveType(gzip) };
    await this.http.done({ method: "PUT", path: `/volumes/${segment(name)}/archive`, headers, body: await bodyOf(data, onProgress), signal });
  }
}

/** Values that sandboxes use and never see. */
export class Secrets {
  constructor(private readonly http: Http) {}

  /** Makes a secret, or gives one another value. */
  set(options: SecretOptions): Promise<SecretInfo> {
    return this.http.json<SecretInfo>({ method: "POST", path: "/secrets", json: options });
  }

  list(): Pages<SecretInfo> {
    return new Pages<SecretInfo>(this.http, { method: "GET", path: "/secrets" });
  }

  async remove(name: string): Promise<void> {
    await this.http.done({ method: "DELETE", path: `/secrets/${segment(name)}` });
  }
}

/** The API keys of a server, for its admins. */
export class Keys {
  constructor(private readonly http: Http) {}

  /** Makes a key. It is shown this once, so a request whose answer is lost is not sent again. */
  create(options: { name?: string; owner?: string; admin?: boolean } = {}): Promise<NewApiKey> {
    return this.http.json<NewApiKey>({ method: "POST", path: "/keys", json: options });
  }

  list(): Pages<ApiKey> {
    return new Pages<ApiKey>(this.http, { method: "GET", path: "/keys" });
  }

  /** Ends a key at once. */
  async revoke(id: string): Promise<void> {
    await this.http.done({ method: "DELETE", path: `/keys/${segment(id)}` });
  }
}
