"""What differs between the asynchronous client and the blocking one: waiting, local files, sockets.

:mod:`agentbox._blocking` has the same names for the blocking client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import IO, Any, Protocol

import httpx
import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as follow
from websockets.asyncio.client import unix_connect

from agentbox import errors
from agentbox._local import CHUNK, Progress, Source, pieces
from agentbox._wire import CONNECT, Settings, transport_error
from agentbox._ws import MOST_MESSAGE, closed_error, open_error, uri

sleep = asyncio.sleep


async def read(f: IO[bytes], n: int) -> bytes:
    """Reads from a local file."""
    return await asyncio.to_thread(f.read, n)


async def write(f: IO[bytes], data: bytes) -> None:
    """Writes to a local file."""
    await asyncio.to_thread(f.write, data)


async def run(f: Callable[..., Any], *args: Any) -> Any:
    """Does something that may block."""
    return await asyncio.to_thread(f, *args)


async def chunks(source: Source | AsyncIterable[bytes], report: Progress | None, total: int | None) -> AsyncIterator[bytes]:
    """The bytes of a body, in pieces; ``report`` hears of what was taken."""
    done = 0
    async for piece in _pieces(source):
        yield piece
        done += len(piece)
        if report:
            report(done, total)
    if report and not done:
        report(0, total)


async def _pieces(source: Source | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
    elif isinstance(source, (bytes, bytearray, memoryview, str)):
        for piece in pieces(source):
            yield piece
    elif callable(getattr(source, "read", None)):
        f: Any = source
        while piece := await read(f, CHUNK):
            yield piece
    else:
        for piece in source:
            yield piece


#: Answers whose reader is gone; the event loop sees to them itself.
Dropped = deque[tuple[httpx.Response, AsyncIterator[bytes]]]


class Body:
    """The bytes of an answer, in pieces."""

    def __init__(self, response: httpx.Response, dropped: Dropped) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._pieces.__anext__()
        except StopAsyncIteration:
            await self.close()
            raise
        except (httpx.TransportError, httpx.DecodingError) as e:
            await self.close()
            raise transport_error(e) from e

    async def close(self) -> None:
        """Closes it, also twice."""
        await self._response.aclose()


class connect(follow):
    """Opens a WebSocket, and follows nobody elsewhere: a key is for one server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """What a redirect means: that it did not open."""
        return exc


class Socket:
    """A WebSocket to the server."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, settings: Settings, target: str) -> Socket:
        """Opens one; a refusal of the server is its error."""
        options: dict[str, Any] = {
            "additional_headers": settings.headers,
            "open_timeout": CONNECT,
            "max_size": MOST_MESSAGE,
            "compression": None,
            "user_agent_header": None,
        }
        try:
            if settings.socket:
                return cls(await unix_connect(settings.socket, "ws://localhost" + target, **options))
            if settings.tls:
                options["ssl"] = settings.tls
            return cls(await connect(uri(settings) + target, proxy=settings.proxy, **options))
        except (OSError, websockets.WebSocketException) as e:
            raise open_error(e) from e

    async def send(self, data: bytes | str) -> None:
        """Sends a binary or a text message."""
        try:
            await self._connection.send(data)
        except websockets.ConnectionClosed as e:
            raise closed_error(e) from e

    async def receive(self, timeout: float | None = None) -> bytes | str | None:
        """The next message; ``None``: the server closed in order. Too late is a TimeoutError."""
        try:
            return await asyncio.wait_for(self._connection.recv(), timeout)
        except websockets.ConnectionClosedOK:
            return None
        except websockets.ConnectionClosed as e:
            raise closed_error(e) from e
        except asyncio.TimeoutError as e:
            raise TimeoutError("nothing came in time") from e

    async def close(self) -> None:
        """Closes it, also twice."""
        await self._connection.close()


class Carrier(Protocol):
    """A connection to a port of a sandbox, as :func:`forward` uses it."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def close_write(self) -> None: ...
    async def close(self) -> None: ...


class Listener:
    """A local port, each of whose connections is led to one that ``dial`` opens."""

    def __init__(self, server: asyncio.Server, busy: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._busy = busy

    @classmethod
    async def open(cls, host: str, port: int, dial: Callable[[], Awaitable[Carrier]]) -> Listener:
        """Listens; port 0 is any that is free."""
        busy: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            busy.add(task)
            try:
                await _carry(reader, writer, dial)
            except asyncio.CancelledError:
                pass  # the listener is closed
            finally:
                busy.discard(task)
                writer.close()

        return cls(await asyncio.start_server(serve, host, port), busy)

    @property
    def port(self) -> int:
        """The local port."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends it with its connections."""
        self._server.close()
        busy = list(self._busy)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dial: Callable[[], Awaitable[Carrier]]) -> None:
    try:
        carrier = await dial()
    except errors.AgentboxError:
        return  # who connected sees the connection end

    async def out() -> None:
        while data := await reader.read(CHUNK):
            await carrier.write(data)
        await carrier.close_write()

    sending = asyncio.create_task(out())
    try:
        while data := await carrier.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (errors.AgentboxError, OSError):
        pass  # one end is gone, and the other goes now
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, errors.AgentboxError, OSError):
            await sending
        await carrier.close()
