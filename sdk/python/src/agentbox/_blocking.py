"""What differs between the blocking client and the asynchronous one: waiting, local files, sockets.

:mod:`agentbox._aio` has the same names for the asynchronous client.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

import httpx
import websockets
from websockets.sync.client import ClientConnection, connect, unix_connect

from agentbox import errors
from agentbox._local import CHUNK, Progress, Source, pieces
from agentbox._wire import CONNECT, Settings, transport_error
from agentbox._ws import MOST_MESSAGE, closed_error, open_error, uri

sleep = time.sleep


def read(f: IO[bytes], n: int) -> bytes:
    """Reads from a local file."""
    return f.read(n)


def write(f: IO[bytes], data: bytes) -> None:
    """Writes to a local file."""
    f.write(data)


def run(f: Callable[..., Any], *args: Any) -> Any:
    """Does something that may block."""
    return f(*args)


def chunks(source: Source, report: Progress | None, total: int | None) -> Iterator[bytes]:
    """The bytes of a body, in pieces; ``report`` hears of what was taken."""
    done = 0
    for piece in pieces(source):
        yield piece
        done += len(piece)
        if report:
            report(done, total)
    if report and not done:
        report(0, total)


#: Answers whose reader is gone, with their iterators.
Dropped = deque[tuple[httpx.Response, Iterator[bytes]]]


class Body:
    """The bytes of an answer, in pieces.

    One that is dropped before its end is put into ``dropped``, and not closed then:
    garbage is collected at any moment, also while this thread holds the lock of the
    connections, which closing needs.
    """

    def __init__(self, response: httpx.Response, dropped: Dropped) -> None:
        self._response = response
        self._pieces = response.iter_bytes()
        self._end = weakref.finalize(self, dropped.append, (response, self._pieces))
        self._end.atexit = False

    def __iter__(self) -> Body:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            self.close()
            raise
        except (httpx.TransportError, httpx.DecodingError) as e:
            self.close()
            raise transport_error(e) from e

    def close(self) -> None:
        """Closes it, also twice."""
        if self._end.detach():
            self._response.close()


class Socket:
    """A WebSocket to the server."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, settings: Settings, target: str) -> Socket:
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
                return cls(unix_connect(settings.socket, "ws://localhost" + target, **options))
            if settings.tls:
                options["ssl"] = settings.tls
            return cls(connect(uri(settings) + target, proxy=settings.proxy, **options))
        except (OSError, websockets.WebSocketException) as e:
            raise open_error(e) from e

    def send(self, data: bytes | str) -> None:
        """Sends a binary or a text message."""
        try:
            self._connection.send(data)
        except websockets.ConnectionClosed as e:
            raise closed_error(e) from e

    def receive(self, timeout: float | None = None) -> bytes | str | None:
        """The next message; ``None``: the server closed in order. Too late is a TimeoutError."""
        try:
            return self._connection.recv(timeout)
        except websockets.ConnectionClosedOK:
            return None
        except websockets.ConnectionClosed as e:
            raise closed_error(e) from e
        except TimeoutError as e:
            raise TimeoutError("nothing came in time") from e

    def close(self) -> None:
        """Closes it, also twice."""
        self._connection.close()


class Carrier(Protocol):
    """A connection to a port of a sandbox, as :class:`Listener` uses it."""

    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def close_write(self) -> None: ...
    def close(self) -> None: ...


class Listener:
    """A local port, each of whose connections is led to one that ``dial`` opens."""

    def __init__(self, server: socket.socket, dial: Callable[[], Carrier]) -> None:
        self._server = server
        self._dial = dial
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    @classmethod
    def open(cls, host: str, port: int, dial: Callable[[], Carrier]) -> Listener:
        """Listens; port 0 is any that is free."""
        return cls(socket.create_server((host, port)), dial)

    @property
    def port(self) -> int:
        """The local port."""
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """Ends it with its connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            ends = [self._server, *self._open]
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
        self._server.close()
        for thread in self._threads:
            thread.join()

    def _begin(self, f: Callable[..., None], *args: Any) -> None:
        # The program's end does not wait for connections that nobody closed.
        thread = threading.Thread(target=f, args=args, daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._server.accept()
            except OSError:
                return  # it is closed
            with self._lock:
                if self._closed:
                    end.close()
                    return
                self._open.add(end)
                self._begin(self._serve, end)

    def _serve(self, end: socket.socket) -> None:
        try:
            _carry(end, self._dial)
        finally:
            with self._lock:
                self._open.discard(end)
            end.close()


def _carry(end: socket.socket, dial: Callable[[], Carrier]) -> None:
    try:
        carrier = dial()
    except errors.AgentboxError:
        return  # who connected sees the connection end

    def out() -> None:
        with contextlib.suppress(errors.AgentboxError, OSError):
            while data := end.recv(CHUNK):
                carrier.write(data)
            carrier.close_write()

    sending = threading.Thread(target=out, daemon=True)
    sending.start()
    try:
        while data := carrier.read():
            end.sendall(data)
        end.shutdown(socket.SHUT_WR)
    except (errors.AgentboxError, OSError):
        pass  # one end is gone, and the other goes now
    finally:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        carrier.close()
        sending.join()
