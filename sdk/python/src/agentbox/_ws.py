"""WebSockets of terminals and ports: what both clients know of them."""

from __future__ import annotations

import websockets

from agentbox import errors
from agentbox._wire import Settings, error_of, loads, problem_error

#: Bytes of one message: the server's have some 64 KiB.
MOST_MESSAGE = 8 << 20
#: Bytes that a client puts into one message; servers take 1 MiB.
PIECE = 256 << 10


def uri(settings: Settings) -> str:
    """Where WebSockets are opened."""
    return "ws" + settings.base.removeprefix("http")


def open_error(e: Exception) -> errors.AgentboxError:
    """The error for a WebSocket that did not open."""
    if isinstance(e, websockets.InvalidStatus):
        return error_of(e.response.status_code, e.response.headers, bytes(e.response.body or b""))
    if isinstance(e, TimeoutError):
        return errors.RequestTimeout("the server did not answer in time")
    failed = errors.ConnectionFailed(f"no connection to the server: {e}")
    failed.sent = not isinstance(e, OSError)
    return failed


def closed_error(e: websockets.ConnectionClosed) -> errors.AgentboxError:
    """The error for a WebSocket that broke, or that the server closed before its time."""
    if e.rcvd and e.rcvd.code == 1001:
        return errors.Unavailable(e.rcvd.reason or "the server is about to stop")
    return errors.ConnectionFailed(f"the connection broke: {e}")


def control(message: str) -> dict[str, object]:
    """A text message of the server."""
    try:
        value = loads(message)
    except ValueError as e:
        raise errors.ServerError(f"a message of the server is no JSON: {e}") from e
    return value if isinstance(value, dict) else {}


def control_error(message: dict[str, object]) -> errors.AgentboxError:
    """The error that a text message tells of."""
    return problem_error(message, str(message.get("detail") or "the server refused this"))
