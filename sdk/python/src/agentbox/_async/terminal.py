"""Terminals, and connections to ports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from agentbox import _aio, errors
from agentbox._decode import decode
from agentbox._ws import PIECE, control, control_error
from agentbox.models import ExecEnd


class AsyncTerminal:
    """A command with a terminal. Iterating gives its output as bytes, until its end.

    When it is closed before, the command is killed after 5 s, unless it was opened with
    ``detach`` or is opened again by its ``exec_id``, behind ``offset``.
    """

    def __init__(self, socket: _aio.Socket) -> None:
        self._socket = socket
        #: Names the command.
        self.exec_id = ""
        #: How many bytes of its output have come.
        self.offset = 0
        #: How it ended; ``None`` until then.
        self.result: ExecEnd | None = None

    async def begin(self) -> AsyncTerminal:
        """Takes the first message, which says which command it is."""
        try:
            message = await self._socket.receive()
            begin = control(message) if isinstance(message, str) else {}
            if begin.get("type") == "error":
                raise control_error(begin)
            self.exec_id, self.offset = str(begin["exec_id"]), int(str(begin.get("offset", 0)))
        except (KeyError, ValueError) as e:
            await self._socket.close()
            raise errors.ServerError("the terminal does not say which command it is") from e
        except BaseException:
            await self._socket.close()
            raise
        return self

    async def read(self, timeout: float | None = None) -> bytes:
        """The next output; empty: the command has ended, see ``result``.

        Nothing within ``timeout`` seconds is a TimeoutError, and reading may go on. A
        connection that breaks is a :class:`~agentbox.ConnectionFailed`.
        """
        while self.result is None:
            message = await self._socket.receive(timeout)
            if isinstance(message, bytes):
                self.offset += len(message)
                return message
            if message is None:
                raise errors.ConnectionFailed("the terminal was closed before the command's end")
            said = control(message)
            if said.get("type") == "exit":
                self.result = decode(ExecEnd, said)
            elif said.get("type") == "error":
                raise control_error(said)
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def write(self, data: bytes | str) -> None:
        """Types something."""
        if isinstance(data, str):
            data = data.encode()
        for begin in range(0, len(data), PIECE):
            await self._socket.send(data[begin : begin + PIECE])

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the size."""
        await self._socket.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    async def signal(self, signal: int | str) -> None:
        """Sends a signal to the command, by number or name."""
        await self._socket.send(json.dumps({"type": "signal", "signal": signal}))

    async def close(self) -> None:
        """Leaves it."""
        await self._socket.close()

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()


class AsyncConnection:
    """A TCP connection to a port of a sandbox."""

    def __init__(self, socket: _aio.Socket) -> None:
        self._socket = socket

    async def read(self, timeout: float | None = None) -> bytes:
        """What comes next; empty: the other end has ended. Nothing within ``timeout`` seconds is a TimeoutError."""
        while True:
            message = await self._socket.receive(timeout)
            if message is None:
                return b""
            if isinstance(message, bytes) and message:
                return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def write(self, data: bytes) -> None:
        """Sends."""
        for begin in range(0, len(data), PIECE):
            await self._socket.send(data[begin : begin + PIECE])

    async def close_write(self) -> None:
        """Ends this direction; the other one goes on."""
        await self._socket.send('{"type": "eof"}')

    async def close(self) -> None:
        """Ends both directions."""
        await self._socket.close()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()


class AsyncForward:
    """A local port that leads to one of a sandbox, until it is closed."""

    def __init__(self, listener: _aio.Listener, host: str) -> None:
        self._listener = listener
        #: The local address.
        self.host = host
        #: The local port.
        self.port = listener.port

    @classmethod
    async def open(cls, host: str, port: int, dial: Callable[[], Awaitable[_aio.Carrier]]) -> AsyncForward:
        """Listens, and opens a connection for each that comes."""
        return cls(await _aio.Listener.open(host, port, dial), host)

    async def close(self) -> None:
        """Ends it with its connections."""
        await self._listener.close()

    async def __aenter__(self) -> AsyncForward:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(errors.AgentboxError):
            await self.close()
