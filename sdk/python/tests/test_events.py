"""Streams of events, however they are cut and whatever else is in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

import agentbox
from agentbox._events import Decoder, split_length

from test_retry import SANDBOX

# A stream as a server of another version might send it: a BOM, comments, all three
# ends of lines, data in many lines, an unknown event and unknown fields.
CANNED = (
    b"\xef\xbb\xbf"
    b'event: start\r\ndata: {"exec_id":"e1","more":{"x":[1]}}\r\n\r\n'
    b": hello\r\n\r\n:\n\n"
    b'id: 4-0\nevent: stdout\ndata: {"offset":0,\ndata: "data_base64":"aGnD"}\n\n'
    b'event: heartbeat\ndata: {"status":"alive"}\n\n'
    b"event: nothing\n\n"
    b"retry: 5\nunknown: x\nno colon\nid: 5-0\revent:stdout\rdata:"
    b'{"offset":3,"data_base64":"qQo=","later":null}\r\r'
    b'id: 5-3\r\nevent: stderr\r\ndata: {"offset":0,"data_base64":"/w=="}\r\n\r\n'
    b"data: no name\n\n"
    b'id: 5-3\nevent: exit\ndata: {"exec_id":"e1","exit_code":3,"signal":null,"timed_out":false,"oom_killed":false,'
    b'"truncated":{"stdout":false,"stderr":false,"more":true},"reason":"","duration":0.5,"cpu_time":0,"peak_memory":0,"new":"field"}\n\n'
    b'event: stdout\ndata: {"offset":9,"data_base64":"bGF0ZQ=="}\n\n'
)
WANT = [("stdout", 0, b"hi"), ("stdout", 2, "é\n".encode()), ("stderr", 0, b"\xff"), ("exit", 3)]


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def server(pieces: list[bytes]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=SANDBOX)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(pieces))

    return httpx.MockTransport(answer)


def seen(event: agentbox.StreamEvent) -> tuple[object, ...]:
    return (event.type, event.result.exit_code) if event.type == "exit" else (event.type, event.offset, event.data)


def blocking(pieces: list[bytes]) -> list[tuple[object, ...]]:
    with agentbox.Client("http://server", transport=server(pieces)) as c:
        stream = c.get("x").stream("true")
        assert stream.exec_id == "e1"
        return [seen(e) for e in stream]


async def asynchronous(pieces: list[bytes]) -> list[tuple[object, ...]]:
    async with agentbox.AsyncClient("http://server", transport=server(pieces)) as c:
        stream = await (await c.get("x")).stream("true")
        return [seen(e) async for e in stream]


def test_b081_unknown_parts() -> None:
    """What a client does not know is passed over, and the output is exact, wherever it is cut."""
    assert blocking([CANNED]) == WANT
    for cut in range(1, len(CANNED), 7):
        assert blocking([CANNED[:cut], CANNED[cut:]]) == WANT, cut
    assert blocking([CANNED[i : i + 1] for i in range(len(CANNED))]) == WANT
    assert asyncio.run(asynchronous([CANNED[i : i + 1] for i in range(len(CANNED))])) == WANT
    assert asyncio.run(asynchronous([CANNED])) == WANT


def test_b081_fields_that_lack() -> None:
    """An output event without its output is the server's fault, not a crash or a piece that is left out."""
    broken = CANNED.replace(b'"data_base64":"qQo="', b'"other":"qQo="')
    with pytest.raises(agentbox.ServerError):
        blocking([broken])
    for text in (b"not json", b"[1]", b"null"):
        with pytest.raises(agentbox.ServerError):
            blocking([b'event: start\ndata: {"exec_id":"e1"}\n\nevent: stdout\ndata: ' + text + b"\n\n"])


def test_stream_lets_go_of_its_connection() -> None:
    with agentbox.Client("http://server", transport=server([CANNED, b": more\n\n"])) as c:
        for leave in (list, lambda s: s.wait(), lambda s: s.close(), lambda s: s.__exit__(None, None, None)):
            stream = c.get("x").stream("true")
            leave(stream)  # type: ignore[operator]
            assert stream._response.is_closed


def test_error_event() -> None:
    begin = b'event: start\ndata: {"exec_id":"e1"}\n\n'
    with pytest.raises(agentbox.SandboxGone, match="gone") as e:
        blocking([begin, b'event: error\ndata: {"detail":"gone","code":"sandbox_destroyed","reason":"oom","request_id":"r"}\n\n'])
    assert e.value.reason == "oom"


@pytest.mark.parametrize("piece", [b"x" * 100, b"data:" + b"x" * 95 + b"\n", b"data:\n" * 20])
def test_event_is_bounded(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbox._events.MOST_EVENT", 10_000)
    decoder = Decoder()
    with pytest.raises(agentbox.ServerError):
        for _ in range(1000):
            list(decoder.feed(piece))


@pytest.mark.parametrize("text", ["a", "é", "€", "😀", "é€😀x"])
def test_split_length(text: str) -> None:
    data = text.encode()
    for n in range(len(data) + 1):
        cut = split_length(data[:n])
        assert data[: n - cut].decode() == text[: len(data[: n - cut].decode())]
        assert cut < 4
    assert split_length(b"\xff") == 0 and split_length(b"a\x80") == 0 and split_length(b"") == 0
