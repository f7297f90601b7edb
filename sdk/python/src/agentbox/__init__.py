"""Client of agentbox: run code of agents in isolated sandboxes on your own machine.

:class:`Client` and :class:`AsyncClient` speak the server's own REST API; the sandboxes
that they make are :class:`Box` and :class:`AsyncBox`. Errors are in :mod:`agentbox.errors`,
what the server tells in :mod:`agentbox.models`. :class:`Sandbox` and :class:`AsyncSandbox`
speak ``sandbox.v1`` by gRPC, and need ``grpcio``.
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING

from agentbox._async.box import AsyncBox
from agentbox._async.client import AsyncClient
from agentbox._async.files import AsyncFiles
from agentbox._async.process import AsyncProcess, AsyncStream
from agentbox._async.terminal import AsyncConnection, AsyncForward, AsyncTerminal
from agentbox._sync.box import Box
from agentbox._sync.client import Client
from agentbox._sync.files import Files
from agentbox._sync.process import Process, Stream
from agentbox._sync.terminal import Connection, Forward, Terminal
from agentbox.errors import (
    AgentboxError,
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    InvalidArgument,
    NotFound,
    NotRunning,
    OutOfRange,
    PermissionDenied,
    RateLimited,
    RequestTimeout,
    SandboxGone,
    ServerError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from agentbox.models import ExecEnd, ExecResult, Exit, Mount, Output, PublishedPort, StreamEvent

if _TYPE_CHECKING:
    from agentbox.rpc import AsyncSandbox as AsyncSandbox
    from agentbox.rpc import Sandbox as Sandbox

__version__ = _version("agentbox")

__all__ = [
    "AgentboxError",
    "AlreadyExists",
    "AsyncBox",
    "AsyncClient",
    "AsyncConnection",
    "AsyncFiles",
    "AsyncForward",
    "AsyncProcess",
    "AsyncStream",
    "AsyncTerminal",
    "Box",
    "Client",
    "Conflict",
    "Connection",
    "ConnectionFailed",
    "ExecEnd",
    "ExecResult",
    "Exit",
    "Files",
    "Forward",
    "InvalidArgument",
    "Mount",
    "NotFound",
    "NotRunning",
    "OutOfRange",
    "Output",
    "PermissionDenied",
    "Process",
    "PublishedPort",
    "RateLimited",
    "RequestTimeout",
    "SandboxGone",
    "ServerError",
    "Stream",
    "StreamEvent",
    "Terminal",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
]


def __getattr__(name: str) -> object:
    # grpcio is not needed, nor loaded, by those who don't use these.
    if name in ("AsyncSandbox", "Sandbox"):
        from agentbox import rpc

        return getattr(rpc, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
