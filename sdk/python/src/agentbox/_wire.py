"""The part of the client that does no I/O: requests, errors, and when to try again."""

from __future__ import annotations

import json
import os
import random
import socket as sockets
import ssl
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import EllipsisType
from typing import Any

import httpx

from agentbox import errors
from agentbox.models import Mount, PublishedPort

PREFIX = "/api/v1"
DEFAULT_URL = "http://127.0.0.1:8700"

#: Seconds that a stream of events may say nothing: servers send a comment every 15 s.
SILENCE = 60.0
#: Seconds that a connection may take to come about.
CONNECT = 10.0
#: The longest that a server may have the client wait before another try, in seconds.
MOST_PATIENCE = 10.0
#: Bytes of an error that are read.
MOST_PROBLEM = 1 << 20
#: Bytes of an answer. The largest is a command's result: 100 MB of each stream, twice, in base64.
MOST_ANSWER = 600 << 20

#: Lists come in pages of the most that servers give.
PAGE: Mapping[str, Any] = {"limit": 1000}

Duration = float | timedelta
Size = int | str


@dataclass(frozen=True)
class Settings:
    """Where the server is, and how it is talked to."""

    base: str
    key: str = field(repr=False)
    timeout: float
    retries: int
    reconnect: float
    #: Path of a Unix socket; ``None``: TCP.
    socket: str | None
    proxy: str | None
    tls: ssl.SSLContext | None
    transport: Any = None

    @property
    def headers(self) -> dict[str, str]:
        """What each request has."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def settings(
    url: str | None,
    api_key: str | None,
    timeout: float,
    retries: int,
    reconnect: float,
    tls: ssl.SSLContext | None,
    transport: Any,
) -> Settings:
    """Completes what the caller gave with the variables of the environment."""
    url = url or os.environ.get("AGENTBOX_URL") or DEFAULT_URL
    key = api_key if api_key is not None else os.environ.get("AGENTBOX_API_KEY", "")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path:
        return Settings("http://localhost", key, timeout, retries, reconnect, parts.path, None, None, transport)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ValueError(f"{url!r} is no URL of a server, such as {DEFAULT_URL} or unix:///run/agentbox/agentbox.sock")
    if parts.scheme == "https" and tls is None:
        tls = httpx.create_ssl_context()
        if ca := os.environ.get("AGENTBOX_CACERT"):
            tls.load_verify_locations(cafile=ca)
    base = url.rstrip("/")
    return Settings(base, key, timeout, retries, reconnect, None, _proxy(parts), tls, transport)


def _proxy(parts: urllib.parse.SplitResult) -> str | None:
    """The proxy that the environment names. There is none to this machine itself."""
    host = parts.hostname or ""
    if host == "localhost" or host == "::1" or host.startswith("127.") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def keepalive() -> list[tuple[int, int, int]]:
    """Options that let a connection to a machine that is gone end within a minute or so."""
    options = [(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(sockets, name):
            options.append((sockets.IPPROTO_TCP, getattr(sockets, name), value))
    return options


@dataclass(frozen=True)
class Request:
    """One call of the API."""

    method: str
    #: Below the prefix of the API, quoted.
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Sent as JSON unless it is ``None``.
    json: Any = field(default=None, repr=False)  # may have secrets
    #: Makes the body, for each try anew.
    body: Callable[[], Any] | None = None
    #: Seconds that the answer may take; ``None``: as long as what it waits for takes. Default: the client's.
    patience: float | None | EllipsisType = ...
    #: It may be sent again although the server may have done it.
    repeatable: bool = False

    def query(self) -> httpx.QueryParams:
        """The parameters that are set."""
        pairs: list[tuple[str, str | int | float | bool | None]] = []
        for name, value in self.params.items():
            if value is None or value is False:
                continue
            for one in [value] if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) else value:
                pairs.append((name, "true" if one is True else str(one)))
        return httpx.QueryParams(pairs)


def get(path: str, /, **params: Any) -> Request:
    """A question, which may be asked again."""
    return Request("GET", path, params, repeatable=True)


def post(path: str, body: Any = None, /, *, patience: float | None | EllipsisType = ..., key: str | None = None, **params: Any) -> Request:
    """Something to do; with a key once, however often it is sent."""
    headers = {"Idempotency-Key": key} if key else {}
    return Request("POST", path, params, headers, body, patience=patience, repeatable=bool(key))


def page_of(answer: Any, cursor: str | None) -> tuple[list[Any], str | None]:
    """The items of a page, and the cursor of the next one. One that leads on to itself would never end."""
    items, following = (answer.get("items"), answer.get("next_cursor")) if isinstance(answer, dict) else (None, None)
    if not isinstance(items, list) or not isinstance(following, (str, type(None))) or following and following == cursor:
        raise errors.ServerError("the server's answer is no page of a list")
    return items, following


def key_of(key: str | None) -> str:
    """The key of a request that may be sent again: the caller's, else a new one."""
    return uuid.uuid4().hex if key is None else key


def path_of(*parts: str | int) -> str:
    """A path of the API."""
    return "".join("/" + _quoted(str(p)) for p in parts)


def _quoted(part: str) -> str:
    if part in ("", ".", ".."):
        raise errors.InvalidArgument(f"{part!r} names nothing on the server")
    return urllib.parse.quote(part, safe="")


def given(**fields: Any) -> dict[str, Any]:
    """The fields of a body that the caller gave, in the form of the API."""
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value


def seconds(value: Duration | None) -> float | None:
    """A duration as a number."""
    return value.total_seconds() if isinstance(value, timedelta) else value


# What create takes, in the forms that are handy.

NetworkWish = str | Sequence[str] | Mapping[str, Any]


def network_of(wish: NetworkWish | None) -> dict[str, Any] | None:
    """A mode, a list of hosts, or all of it as the API has it."""
    if wish is None:
        return None
    if isinstance(wish, str):
        return {"mode": wish}
    if isinstance(wish, Mapping):
        return dict(wish)
    return {"allow": list(wish)}


def mounts_of(volumes: Sequence[str | Mount] | None) -> list[dict[str, Any]] | None:
    """Volumes, also as ``name:/path`` or ``name:/path:ro``."""
    return None if volumes is None else [_mount(v) for v in volumes]


def _mount(volume: str | Mount) -> dict[str, Any]:
    if isinstance(volume, str):
        name, _, path = volume.partition(":")
        path, _, mode = path.partition(":")
        if not name or not path or mode not in ("", "ro", "rw"):
            raise errors.InvalidArgument(
                f"{volume!r} is no volume, such as data:/data or data:/data:ro", field="volumes"
            )
        volume = Mount(name, path, mode == "ro")
    return {"name": volume.name, "path": volume.path, "read_only": volume.read_only}


def ports_of(ports: Sequence[int | PublishedPort] | None) -> list[dict[str, int]] | None:
    """Ports to publish; a number is a port of the sandbox, at any free port of the host."""
    if ports is None:
        return None
    both = [p if isinstance(p, PublishedPort) else PublishedPort(p) for p in ports]
    return [{"guest": p.guest, "host": p.host} for p in both]


def loads(text: str | bytes) -> Any:
    """Reads JSON of a server. What can't be read is a ValueError, however it was made up."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# Errors.

_BY_CODE: dict[str, type[errors.AgentboxError]] = {
    "invalid_value": errors.InvalidArgument,
    "invalid_request": errors.InvalidArgument,
    "unauthenticated": errors.Unauthenticated,
    "forbidden": errors.PermissionDenied,
    "method_not_allowed": errors.InvalidArgument,
    "unsupported_media_type": errors.InvalidArgument,
    "not_found": errors.NotFound,
    "sandbox_destroyed": errors.SandboxGone,
    "sandbox_expired": errors.SandboxGone,
    "not_running": errors.NotRunning,
    "already_exists": errors.AlreadyExists,
    "conflict": errors.Conflict,
    "too_large": errors.TooLarge,
    "out_of_range": errors.OutOfRange,
    "unsupported": errors.Unsupported,
    "limit_exceeded": errors.RateLimited,
    "quota_exceeded": errors.RateLimited,
    "rate_limited": errors.RateLimited,
    "timeout": errors.Unavailable,
    "canceled": errors.Unavailable,
    "unavailable": errors.Unavailable,
    "internal": errors.ServerError,
}

_BY_STATUS: dict[int, type[errors.AgentboxError]] = {
    401: errors.Unauthenticated,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    408: errors.Unavailable,
    409: errors.Conflict,
    413: errors.TooLarge,
    416: errors.OutOfRange,
    429: errors.RateLimited,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> errors.AgentboxError:
    """The error that an answer tells of. What stands before the server may answer in other words."""
    try:
        problem = loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    detail = problem.get("detail")
    fields = [d for d in detail if isinstance(d, dict)] if isinstance(detail, list) else []
    if fields:
        detail = "; ".join(f"{_place(d.get('loc'))}: {d.get('msg', '')}" for d in fields)
    if not isinstance(detail, str) or not detail:
        detail = f"the server answered with status {status}"
    error = problem_error(problem, detail, status)
    if not error.request_id:
        error.request_id = headers.get("x-request-id", "")
    if isinstance(error, errors.InvalidArgument):
        error.errors = fields
    if isinstance(error, errors.OutOfRange):
        error.first_offset = whole(headers.get("x-first-offset"))
    if isinstance(error, (errors.RateLimited, errors.Unavailable)):
        error.retry_after = whole(headers.get("retry-after"))
    return error


def _place(loc: object) -> str:
    return ".".join(str(p) for p in loc) if isinstance(loc, list) else ""


def problem_error(problem: Mapping[str, Any], detail: str, status: int | None = None) -> errors.AgentboxError:
    """The error that a problem of the API tells of."""

    def text(name: str) -> str | None:
        value = problem.get(name)
        return value if isinstance(value, str) else None

    code = text("code") or ""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status or 0)
    if kind is None:
        kind = errors.InvalidArgument if 400 <= (status or 0) < 500 else errors.ServerError
    return kind(
        detail,
        code=code,
        status=status,
        request_id=text("request_id") or "",
        field=text("field"),
        allowed=text("allowed"),
        reason=text("reason"),
    )


def whole(text: str | None) -> int | None:
    """A number that a header has; ``None``: it has none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def transport_error(e: Exception, server: str = "") -> errors.Unavailable:
    """The error for a request that got no answer from the server of that URL."""
    text = str(e) or type(e).__name__
    if isinstance(e, (httpx.ReadTimeout, httpx.WriteTimeout)):
        return errors.RequestTimeout(f"the server did not answer in time: {type(e).__name__}")
    error = errors.ConnectionFailed(f"no connection to the server{server and ' at '}{server}: {text}")
    error.sent = not isinstance(e, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError))
    return error


# When to try again.


@dataclass
class Tries:
    """Counts the tries of one request."""

    left: int
    wait: float = 0.1

    def delay(self, request: Request, error: errors.AgentboxError) -> float | None:
        """Seconds until the next try; ``None``: there is none.

        A request that may have been done is sent again only if doing it twice does no
        harm. One that no server got, or that was refused because there are too many,
        was not done.
        """
        if self.left <= 0:
            return None
        if isinstance(error, errors.ConnectionFailed) and not error.sent:
            pass
        elif request.body is not None:
            return None  # nobody knows how much of it was taken
        elif isinstance(error, errors.RateLimited):
            if error.code != "rate_limited":  # a quota: it needs something else to end
                return None
        elif isinstance(error, errors.RequestTimeout) or not isinstance(error, errors.Unavailable):
            return None
        elif not request.repeatable:
            return None
        wait = self.wait
        if isinstance(error, (errors.RateLimited, errors.Unavailable)) and error.retry_after is not None:
            if error.retry_after > MOST_PATIENCE:
                return None
            wait = max(wait, error.retry_after)
        self.left -= 1
        self.wait = min(2 * self.wait, MOST_PATIENCE)
        return wait * (1 + random.random() / 2)  # not all clients at once
