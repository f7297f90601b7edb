"""Channels to a server: where it is, what they carry, whose key they bring, and how their errors read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import grpc

from agentbox import errors
from agentbox._wire import whole

#: Where a server is if nobody says otherwise.
DEFAULT_URL = "http://localhost:50051"

#: Bytes of a message: a text of 64 MiB, the most that the server takes and gives, and
#: what is around it. A stock channel takes 4 MiB.
MAX_MESSAGE = (64 << 20) + (1 << 20)

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A command may be silent for hours: pings find out that its server is gone.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Address:
    """A server as channels need it."""

    target: str
    secure: bool
    options: tuple[tuple[str, int], ...]
    metadata: tuple[tuple[str, str], ...] = field(repr=False)  # has the key
    roots: bytes | None = field(repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a secure channel."""
        return grpc.ssl_channel_credentials(self.roots)


def address(base_url: str, api_key: str | None, ca_file: str | os.PathLike[str] | None) -> Address:
    """Reads a URL such as http://localhost:50051. https means TLS; a path is refused, since gRPC has none."""
    url = urlsplit(base_url if "://" in base_url else "http://" + base_url)
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or url.query or url.username:
        raise ValueError(f"the address of a server is http://HOST:PORT or https://HOST:PORT, not {base_url!r}")
    secure = url.scheme == "https"
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    options: tuple[tuple[str, int], ...] = _OPTIONS
    if url.hostname in _LOOPBACK:
        options += (("grpc.enable_http_proxy", 0),)  # a proxy knows another loopback
    key = os.environ.get("AGENTBOX_API_KEY", "") if api_key is None else api_key
    ca_file = ca_file or os.environ.get("AGENTBOX_CACERT")
    return Address(
        target=f"{host}:{url.port or (443 if secure else 80)}",
        secure=secure,
        options=options,
        metadata=(("authorization", "Bearer " + key),) if key else (),
        roots=Path(ca_file).read_bytes() if ca_file else None,
    )


_CLASSES: dict[grpc.StatusCode, type[errors.AgentboxError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unsupported,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Conflict,
    grpc.StatusCode.ABORTED: errors.Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.RateLimited,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.RequestTimeout,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
}


def error_of(e: grpc.RpcError) -> errors.AgentboxError:
    """The package's error for a status."""
    call = cast(grpc.Call, e)  # as each error of a call is
    code, detail = call.code(), call.details() or ""
    said = {name: value for part in (call.initial_metadata(), call.trailing_metadata()) for name, value in part or ()}
    request_id = str(said.get("x-request-id", ""))
    kind = _CLASSES.get(code, errors.ServerError)
    if kind is errors.RateLimited and "larger than" in detail:
        kind = errors.TooLarge  # of a message, here or there
    if kind is errors.Unavailable and not request_id:
        kind = errors.ConnectionFailed  # no server said this
    error = kind(detail or code.name, request_id=request_id)
    if isinstance(error, (errors.RateLimited, errors.Unavailable)):
        error.retry_after = whole(str(said.get("retry-after")))
    return error
