# Made from _async/terminal.py by tools/unasync.py: change that one.
"""Terminals, and connections to ports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import TracebackType

from agentbox import _blocking, errors
from agentbox._decode import decode
from agentbox._ws import PIECE, control, control_error
from agentbox.models import ExecEnd


class Terminal:
    """A command with a terminal. Iterating gives its output as bytes, until its end.

    When it is closed before, the command is killed after 5 s, unless it was opened with
    ``detach`` or is opened again by its ``exec_id``, behind ``offset``.
    """

    def __init__(self, socket: _blocking.Socket) -> None:
        self._socket = socket
        #: Names the command.
        self.exec_id = ""
        #: How many bytes of its output have come.
        self.offset = 0
        #: How it ended; ``None`` until then.
        self.result: ExecEnd | None = None

    def begin(self) -> Terminal:
        """Takes the first message, which says which command it is."""
        try:
            message = self._socket.receive()
            begin = control(message) if isinstance(message, str) else {}
            if begin.get("type") == "error":
                raise control_error(begin)
            self.exec_id, self.offset = str(begin["exec_id"]), int(str(begin.get("offset", 0)))
        except (KeyError, ValueError) as e:
            self._socket.close()
            raise errors.ServerError("the terminal does not say which command it is") from e
        except BaseException:
            self._socket.close()
            raise
        return self

    def read(self, timeout: float | None = None) -> bytes:
        """The next output; empty: the command has ended, see ``result``.

        Nothing within ``timeout`` seconds is a TimeoutError, and reading may go on. A
        connection that breaks is a :class:`~agentbox.ConnectionFailed`.
        """
        while self.result is None:
            message = self._socket.receive(timeout)
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

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def write(self, data: bytes | str) -> None:
        """Types something."""
        if isinstance(data, str):
            data = data.encode()
        for begin in range(0, len(data), PIECE):
            self._socket.send(data[begin : begin + PIECE])

    def resize(self, cols: int, rows: int) -> None:
        """Sets the size."""
        self._socket.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def signal(self, signal: int | str) -> None:
        """Sends a signal to the command, by number or name."""
        self._socket.send(json.dumps({"type": "signal", "signal": signal}))

    def close(self) -> None:
        """Leaves it."""
        self._socket.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Connection:
    """A TCP connection to a port of a sandbox."""

    def __init__(self, socket: _blocking.Socket) -> None:
        self._socket = socket

    def read(self, timeout: float | None = None) -> bytes:
        """What comes next; empty: the other end has ended. Nothing within ``timeout`` seconds is a TimeoutError."""
        while True:
            message = self._socket.receive(timeout)
            if message is None:
                return b""
            if isinstance(message, bytes) and message:
                return message

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def write(self, data: bytes) -> None:
        """Sends."""
        for begin in range(0, len(data), PIECE):
            self._socket.send(data[begin : begin + PIECE])

    def close_write(self) -> None:
        """Ends this direction; the other one goes on."""
        self._socket.send('{"type": "eof"}')

    def close(self) -> None:
        """Ends both directions."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Forward:
    """A local port that leads to one of a sandbox, until it is closed."""

    def __init__(self, listener: _blocking.Listener, host: str) -> None:
        self._listener = listener
        #: The local address.
        self.host = host
        #: The local port.
        self.port = listener.port

    @classmethod
    def open(cls, host: str, port: int, dial: Callable[[], _blocking.Carrier]) -> Forward:
        """Listens, and opens a connection for each that comes."""
        return cls(_blocking.Listener.open(host, port, dial), host)

    def close(self) -> None:
        """Ends it with its connections."""
        self._listener.close()

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(errors.AgentboxError):
            self.close()
