import type { FieldError } from "./types.js";

/** What a server says of a request that it did not do. */
export interface ErrorDetails {
  /** The HTTP status; 0: there was no answer, or a stream that had begun ended with the error. */
  status: number;
  /** What is wrong, for programs: a word of a closed list, such as not_found. */
  code: string;
  /** The request's id, which the server's log has, too. */
  requestId: string;
  /** The field or parameter that is wrong. */
  field?: string;
  /** What would be allowed there. */
  allowed?: string;
  /** Of a sandbox that is gone: why. */
  reason?: string;
  /** Seconds after which the server asks to be asked again. */
  retryAfter?: number;
  /** Of a request of the wrong form: what is wrong with which field. */
  fields?: FieldError[];
}

/** What every error of the client is. Its message is what the server said. */
export class AgentboxError extends Error implements ErrorDetails {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly field?: string;
  readonly allowed?: string;
  readonly reason?: string;
  readonly retryAfter?: number;
  readonly fields?: FieldError[];

  constructor(message: string, details: Partial<ErrorDetails> = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.status = details.status ?? 0;
    this.code = details.code ?? "";
    this.requestId = details.requestId ?? "";
    this.field = details.field;
    this.allowed = details.allowed;
    this.reason = details.reason;
    this.retryAfter = details.retryAfter;
    this.fields = details.fields;
  }
}

/** There is no answer: no server, or the connection broke. What was asked for may have been done. */
export class ConnectionError extends AgentboxError {}
/** The request has the wrong form, or a value that is not allowed. */
export class InvalidArgument extends AgentboxError {}
/** The request, or what it asked for, is larger than may be. */
export class TooLarge extends InvalidArgument {}
/** There is nothing at this offset. */
export class OutOfRange extends InvalidArgument {}
/** This server can't do or enforce it. */
export class Unsupported extends AgentboxError {}
/** There is no API key, or it is not a good one. */
export class Unauthenticated extends AgentboxError {}
/** Not with this key, or from this place. */
export class PermissionDenied extends AgentboxError {}
/** It is not there, or is somebody else's. */
export class NotFound extends AgentboxError {}
/** The sandbox was there: reason says why it is gone. */
export class SandboxGone extends NotFound {}
/** Not as things are, or not together with another call. */
export class Conflict extends AgentboxError {}
/** The sandbox must run for this. */
export class NotRunning extends Conflict {}
/** There is one already. */
export class AlreadyExists extends Conflict {}
/** A limit of the server or of the owner is reached; retryAfter says when to try again. */
export class RateLimited extends AgentboxError {}
/** Not now; try again later. */
export class Unavailable extends AgentboxError {}
/** The server's own fault. */
export class Internal extends AgentboxError {}

type Kind = new (message: string, details?: Partial<ErrorDetails>) => AgentboxError;

const byCode: Record<string, Kind> = {
  invalid_value: InvalidArgument,
  invalid_request: InvalidArgument,
  method_not_allowed: InvalidArgument,
  unsupported_media_type: InvalidArgument,
  sandbox_destroyed: SandboxGone,
  sandbox_expired: SandboxGone,
  not_running: NotRunning,
  already_exists: AlreadyExists,
  not_found: NotFound,
  too_large: TooLarge,
  out_of_range: OutOfRange,
  unsupported: Unsupported,
  conflict: Conflict,
  unauthenticated: Unauthenticated,
  forbidden: PermissionDenied,
  limit_exceeded: RateLimited,
  quota_exceeded: RateLimited,
  rate_limited: RateLimited,
  timeout: Unavailable,
  canceled: Unavailable,
  unavailable: Unavailable,
  internal: Internal,
};

const byStatus: Record<number, Kind> = {
  401: Unauthenticated,
  403: PermissionDenied,
  404: NotFound,
  408: Unavailable,
  409: Conflict,
  413: TooLarge,
  416: OutOfRange,
  429: RateLimited,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

/** The error for what a server said. A code or status of a later version is one of its kind. */
export function errorOf(message: string, details: Partial<ErrorDetails>): AgentboxError {
  const status = details.status ?? 0;
  const kind = byCode[details.code ?? ""] ?? byStatus[status] ?? (status >= 400 && status < 500 ? InvalidArgument : Internal);
  return new kind(message, details);
}

/** The error that an answer tells of; the answer is read. */
export async function errorOfResponse(response: Response): Promise<AgentboxError> {
  const text = await response.text().catch(() => "");
  const body = parse(text);
  const details: Partial<ErrorDetails> = {
    status: response.status,
    code: word(body.code),
    requestId: word(body.request_id) ?? response.headers.get("X-Request-ID") ?? "",
    field: word(body.field),
    allowed: word(body.allowed),
    reason: word(body.reason),
    retryAfter: seconds(response.headers.get("Retry-After")),
  };
  if (Array.isArray(body.detail)) {
    details.fields = body.detail as FieldError[];
    const told = details.fields.map((field) => `${field.loc.join(".")}: ${field.msg}`).join("; ");
    return errorOf(told, { ...details, code: "invalid_form" });
  }
  return errorOf(word(body.detail) ?? `The server answered ${response.status} ${response.statusText}`.trim(), details);
}

/** The error that a stream, or a WebSocket, ends with. */
export function errorOfEvent(text: string): AgentboxError {
  const body = parse(text);
  return errorOf(word(body.detail) ?? "The server ended the stream", { code: word(body.code), requestId: word(body.request_id), reason: word(body.reason) });
}

/** What else than JSON comes is from a proxy in between: it tells nothing that could be shown. */
function parse(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function word(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function seconds(value: string | null): number | undefined {
  const n = Number(value);
  return value !== null && Number.isFinite(n) && n >= 0 ? n : undefined;
}
