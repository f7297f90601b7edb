"""Servers that are none, or not the one that was meant: what they send is an error of the package, and ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from test_retry import SANDBOX, Script, Step

from agentbox import _aio, _blocking, _wire
from agentbox._sync import http
from agentbox.errors import AgentboxError, ConnectionFailed, InvalidArgument, ServerError

DEEP = "[" * 200_000


def sends(body: str, status: int = 200) -> Step:
    return lambda _: httpx.Response(status, text=body)


@pytest.mark.parametrize("status", [200, 400])
def test_json_that_is_nested_too_deeply(status: int) -> None:
    with pytest.raises(ServerError if status == 200 else InvalidArgument):
        Script(sends(DEEP, status)).client().version()


def test_an_endless_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_ANSWER", 1 << 20)
    sent = itertools.count()

    class Endless(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]
            for n in sent:
                assert n < 100, "it is read on and on"
                yield b" " * 65536

    with pytest.raises(ServerError, match="more than 1048576 bytes"):
        Script(lambda _: httpx.Response(200, stream=Endless())).client().version()


@pytest.mark.parametrize("detail", ['[{"loc": 5, "msg": 7}, 5, {"loc": [{}]}]', "{}", "5"])
def test_errors_in_an_odd_form(detail: str) -> None:
    with pytest.raises(InvalidArgument):
        Script(sends(f'{{"detail": {detail}, "code": [], "request_id": 5, "field": {{}}}}', 422)).client().version()


@pytest.mark.parametrize("page", ["null", "[]", '{"items": 5}', '{"items": [], "next_cursor": 5}'])
def test_pages_that_are_none(page: str) -> None:
    with pytest.raises(ServerError, match="no page of a list"):
        list(Script(sends(page)).client().list())


def test_a_page_that_leads_to_itself() -> None:
    script = Script(*[sends('{"items": [], "next_cursor": "a"}')] * 3)
    with pytest.raises(ServerError, match="no page of a list"):
        list(script.client().list())
    assert len(script.got) == 2


def follow(stream: str, *, reconnect: float = 1) -> None:
    """Follows a command whose every stream is cut behind these events."""
    box = httpx.Response(200, json=SANDBOX)
    events = 'event: start\nid: 0-0\ndata: {"exec_id": "e"}\n\n' + stream
    script = Script(lambda _: box, *[sends(events)] * 100)
    with script.client(reconnect=reconnect).get("box").stream("true") as output:
        for _ in output:
            pass


def test_an_event_that_is_nested_too_deeply() -> None:
    with pytest.raises(ServerError):
        follow(f"event: stdout\ndata: {DEEP}\n\n")


@pytest.mark.parametrize("odd", ["\u00e9", "a\u0001b", "a b", "9" * 1000])
def test_an_id_that_no_request_can_give_back(odd: str) -> None:
    with pytest.raises(ServerError, match="an id that is none"):
        follow(f'event: stdout\nid: {odd}\ndata: {{"offset": 0, "data_base64": "aGk="}}\n\n')


def test_streams_that_never_get_on() -> None:
    with pytest.raises(ConnectionFailed):
        follow("")


class Elsewhere(BaseHTTPRequestHandler):
    """Leads to another server, which notes who comes."""

    protocol_version = "HTTP/1.1"
    to = ""

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))  # type: ignore[attr-defined]
        self.send_response(302)
        self.send_header("Location", self.to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_no_websocket_goes_elsewhere(kind: str) -> None:
    seen: list[str | None] = []
    elsewhere = HTTPServer(("127.0.0.1", 0), type("There", (Elsewhere,), {"seen": seen, "to": "/"}))
    here = HTTPServer(
        ("127.0.0.1", 0), type("Here", (Elsewhere,), {"seen": [], "to": f"ws://localhost:{elsewhere.server_port}/"})
    )
    for server in (here, elsewhere):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{here.server_port}"
    settings = _wire.settings(url, "the-key", 5, 0, 0, None, None)

    async def connect() -> None:
        await _aio.Socket.open(settings, "/")

    try:
        with pytest.raises(AgentboxError) as raised:
            if kind == "blocking":
                _blocking.Socket.open(settings, "/")
            else:
                asyncio.run(connect())
    finally:
        for server in (here, elsewhere):
            server.shutdown()
            server.server_close()
    assert seen == []
    assert raised.value.status == 302
    assert "the-key" not in repr(raised.value)
