"""Server-sent events, and what those of a command mean. Does no I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from agentbox._decode import decode
from agentbox._wire import loads, problem_error
from agentbox.errors import AgentboxError, ServerError
from agentbox.models import ExecEnd, Exit, Output, StreamEvent

#: Bytes of one event; the server's have some 90 KiB at most.
MOST_EVENT = 8 << 20

#: What an id is that a request can give back.
_ID = re.compile(r"[!-~]{0,256}")
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One event, as it was sent."""

    name: str
    data: str
    #: The last id that the stream had so far.
    id: str

    def fields(self) -> dict[str, Any]:
        """The data, which is an object."""
        try:
            value = loads(self.data)
        except ValueError as e:
            raise ServerError(f"an event of the server is no JSON: {e}") from e
        if not isinstance(value, dict):
            raise ServerError("an event of the server is no object")
        return value


class Decoder:
    """Reads events out of bytes, wherever those are cut.

    It follows the standard: lines end with LF, CR or both, a BOM may come first,
    comments and unknown fields are passed over, data may have many lines.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line that is not whole
        self._parts_size = 0
        self._begun = False
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Takes bytes and gives the events that are whole."""
        for line in self._lines(chunk):
            event = self._line(line)
            if event is not None:
                yield event

    def _lines(self, chunk: bytes) -> Iterator[str]:
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        begin = 0
        for end in _LINE_END.finditer(chunk):
            line = b"".join([*self._parts, chunk[begin : end.start()]])
            begin = end.end()
            self._parts, self._parts_size = [], 0
            self._after_cr = begin == len(chunk) and end[0] == b"\r"
            if not self._begun:
                self._begun = True
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield line.decode(errors="replace")
        if begin < len(chunk):
            self._parts.append(chunk[begin:])
            self._parts_size += len(chunk) - begin
            self._bound(self._parts_size)

    def _bound(self, more: int) -> None:
        if self._size + more > MOST_EVENT:
            raise ServerError(f"an event of the server has more than {MOST_EVENT} bytes")

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._name or "message", "\n".join(self._data), self._id) if self._data else None
            self._name, self._data, self._size = "", [], 0
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(value) + 1
            self._bound(0)
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None


def split_length(data: bytes) -> int:
    """How many bytes at the end are the begin of a character that is not whole."""
    for n in range(1, min(4, len(data) + 1)):
        byte = data[-n]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return n if byte < 0xF8 and length > n else 0
    return 0


class Follow:
    """Makes events of a command out of those of the server, and knows how far it is."""

    def __init__(self) -> None:
        self.exec_id = ""
        self.last_id = ""
        self.result: ExecEnd | None = None
        self._tails: dict[str, tuple[int, bytes]] = {}

    def take(self, event: ServerEvent) -> list[StreamEvent]:
        """What an event means. An error that the server tells of is raised. Unknown ones mean nothing."""
        if event.name == "start":
            self.exec_id = str(event.fields().get("exec_id", ""))
        elif event.name == "stdout":
            return self._output("stdout", event)
        elif event.name == "stderr":
            return self._output("stderr", event)
        elif event.name == "exit":
            self.result = decode(ExecEnd, event.fields())
            return [*self._held(), Exit(self.result)]
        elif event.name == "error":
            raise stream_error(event)
        return []

    def _output(self, stream: Literal["stdout", "stderr"], event: ServerEvent) -> list[StreamEvent]:
        fields = event.fields()
        try:
            offset, data = int(fields["offset"]), base64.b64decode(fields["data_base64"], validate=True)
        except (KeyError, TypeError, ValueError) as e:
            raise ServerError(f"an event of the server is no output: {e!r}") from e
        if not _ID.fullmatch(event.id):
            raise ServerError("an event of the server has an id that is none")
        self.last_id = event.id
        begin, tail = self._tails.pop(stream, (offset, b""))
        data = tail + data
        if cut := split_length(data):
            self._tails[stream] = begin + len(data) - cut, data[-cut:]
            data = data[:-cut]
        return [Output(stream, begin, data)] if data else []

    def _held(self) -> Iterator[Output]:
        """Characters that stayed in parts."""
        for stream in ("stdout", "stderr"):
            if stream in self._tails:
                yield Output(stream, *self._tails.pop(stream))


def stream_error(event: ServerEvent) -> AgentboxError:
    """The error that a stream ends with."""
    problem = event.fields()
    detail = problem.get("detail")
    return problem_error(problem, detail if isinstance(detail, str) else "the stream ended with an error")
