"""Errors of the package. All of them are an :class:`AgentboxError`."""

from __future__ import annotations

from typing import Any


class AgentboxError(Exception):
    """Base of all errors of the package.

    An error that the server answered with has its ``status`` and ``request_id``;
    without an answer ``status`` is ``None`` and ``request_id`` empty.
    """

    #: Code of an error that has no answer of the server.
    default_code = "error"

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        status: int | None = None,
        request_id: str = "",
        field: str | None = None,
        allowed: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(detail)
        #: What is wrong, in words.
        self.detail = detail
        #: What is wrong, for programs: the server's word, such as ``already_exists``.
        self.code = code or self.default_code
        #: Status of the HTTP answer.
        self.status = status
        #: Names the request in the server's log.
        self.request_id = request_id
        #: The field or parameter that is wrong.
        self.field = field
        #: What would be allowed there.
        self.allowed = allowed
        #: Why a sandbox is gone, such as ``idle``, ``lifetime`` or ``oom``.
        self.reason = reason


class InvalidArgument(AgentboxError):
    """A request has the wrong form (``errors`` tells where) or a value that is not allowed."""

    default_code = "invalid_value"

    #: Of a wrong form: one entry per field, with ``type``, ``loc``, ``msg`` and ``input``.
    errors: list[dict[str, Any]] = []


class TooLarge(InvalidArgument):
    """More bytes than the server takes."""

    default_code = "too_large"


class OutOfRange(InvalidArgument):
    """An offset or range that isn't there, such as output that the server has let go."""

    default_code = "out_of_range"

    #: The first offset of output that is still there; ``None``: not told.
    first_offset: int | None = None


class Unsupported(AgentboxError):
    """The server can't do or enforce this."""

    default_code = "unsupported"


class Unauthenticated(AgentboxError):
    """There is no API key, or not a good one."""

    default_code = "unauthenticated"


class PermissionDenied(AgentboxError):
    """Not with this key, or not from this place."""

    default_code = "forbidden"


class NotFound(AgentboxError):
    """It is not there, or somebody else's."""

    default_code = "not_found"


class SandboxGone(NotFound):
    """The sandbox was there; ``reason`` says why it is not any more."""

    default_code = "sandbox_destroyed"


class Conflict(AgentboxError):
    """Not possible as things are, or at the same time as another call."""

    default_code = "conflict"


class AlreadyExists(Conflict):
    """There is one of that name already."""

    default_code = "already_exists"


class NotRunning(Conflict):
    """The sandbox must run for this."""

    default_code = "not_running"


class RateLimited(AgentboxError):
    """Too many requests, or a limit or quota is reached."""

    default_code = "rate_limited"

    #: Seconds after which another try makes sense; ``None``: not told.
    retry_after: float | None = None


class Unavailable(AgentboxError):
    """The server can't be reached, or can't do it now."""

    default_code = "unavailable"

    #: Seconds after which another try makes sense; ``None``: not told.
    retry_after: float | None = None


class ConnectionFailed(Unavailable):
    """There was no connection, or it broke. What was asked for may have been done."""

    default_code = "connection_failed"

    #: False: no server got the request.
    sent: bool = True


class RequestTimeout(Unavailable, TimeoutError):
    """The server did not answer within the client's ``timeout``."""

    default_code = "request_timeout"


class ServerError(AgentboxError):
    """The server's own fault, or an answer that makes no sense."""

    default_code = "internal"


__all__ = [
    "AgentboxError",
    "AlreadyExists",
    "Conflict",
    "ConnectionFailed",
    "InvalidArgument",
    "NotFound",
    "NotRunning",
    "OutOfRange",
    "PermissionDenied",
    "RateLimited",
    "RequestTimeout",
    "SandboxGone",
    "ServerError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
]
