"""When a request is sent again: never where something could be done twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

import agentbox

SANDBOX = {
    "id": "a" * 64, "short_id": "a" * 12, "label": "l", "name": None, "status": "running", "error_reason": None, "image": "small", "user": "user",
    "workdir": "/workspace", "labels": {}, "limits": {"memory": 1, "cpus": 1, "disk": 1, "shm": 1, "pids": 1}, "not_enforced": [],
    "network": {"mode": "none", "allow": [], "intercept": [], "resolver": False}, "ports": [], "volumes": [], "secrets": [], "on_idle": "destroy",
    "idle_timeout": 1800, "created_at": "2026-01-02T03:04:05.123456789Z", "started_at": None, "stopped_at": None,
    "last_activity_at": "2026-01-02T03:04:05Z", "expires_at": None, "tenant_id": None, "process_api": False,
}  # fmt: skip
RESULT = {
    "exec_id": "e", "exit_code": 0, "signal": None, "timed_out": False, "oom_killed": False, "truncated": {"stdout": False, "stderr": False},
    "reason": "", "duration": 0.1, "cpu_time": 0, "peak_memory": 0, "stdout": "aGk=", "stderr": "", "output": "aGk=",
}  # fmt: skip

Step = Callable[[httpx.Request], httpx.Response]


class Script(httpx.BaseTransport):
    """A server that answers as it is told, and notes what it got."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.got: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        step = self.steps.pop(0)
        if step is not refused:
            request.read()
        self.got.append(request)
        return step(request)

    def client(self, **options: object) -> agentbox.Client:
        return agentbox.Client("http://server", "key", transport=self, **options)  # type: ignore[arg-type]


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)


def late(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("", request=request)


def says(status: int, code: str = "", **headers: str) -> Step:
    def step(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()}, json={"detail": "no", "code": code, "request_id": "r"})

    return step


def gives(value: object, status: int = 200) -> Step:
    return lambda request: httpx.Response(status, json=value)


VERSION = gives({"version": "1", "api": "v1"})


@pytest.mark.parametrize("failure", [refused, lost, says(503, "unavailable"), says(502), says(429, "rate_limited")])
def test_question_is_asked_again(failure: Step, naps: list[float]) -> None:
    server = Script(failure, failure, VERSION)
    assert server.client().version().version == "1"
    assert len(server.got) == 3
    assert 0.1 <= naps[0] <= 0.15 and 0.2 <= naps[1] <= 0.3


def test_tries_are_bounded(naps: list[float]) -> None:
    server = Script(*[refused] * 10)
    with pytest.raises(agentbox.ConnectionFailed):
        server.client().version()
    assert len(server.got) == 4
    server = Script(refused)
    with pytest.raises(agentbox.Unavailable):
        server.client(retries=0).version()
    assert len(server.got) == 1


def test_waits_differ(naps: list[float]) -> None:
    for _ in range(8):
        Script(refused, VERSION).client().version()
    assert len(set(naps)) > 1


@pytest.mark.parametrize("failure", [lost, says(503, "unavailable"), says(502)])
def test_change_is_not_sent_again(failure: Step, naps: list[float]) -> None:
    """What a server may have done is done once: without a key it is the caller who decides."""
    box = Script(gives(SANDBOX)).client().get("x")
    changes: list[Callable[[], object]] = [
        lambda: box.files.write("f", b"data"),
        lambda: box.files.remove("f"),
        lambda: box.files.move("a", "b"),
        lambda: box.files.chmod("a", "755"),
        lambda: box.update(labels={"a": "b"}),
        lambda: box.stop(),
        lambda: box.start(),
        lambda: box.destroy(),
        lambda: box.network.set([]),
        lambda: box.packages.pip("six"),
        lambda: box.process("e").signal("TERM"),
        lambda: box.process("e").write(b"x"),
        lambda: box.exec("true", idempotency_key=""),
        lambda: box.stream("true", session="s"),
    ]
    for change in changes:
        server = Script(failure)
        box._http._client._transport = server
        with pytest.raises(agentbox.Unavailable):
            change()
        assert len(server.got) == 1
        assert "idempotency-key" not in server.got[0].headers


def test_what_was_not_done_is_sent_again(naps: list[float]) -> None:
    box = Script(gives(SANDBOX)).client().get("x")
    server = Script(refused, lambda request: httpx.Response(204), refused, gives(SANDBOX), says(429, "rate_limited"), gives(SANDBOX))
    box._http._client._transport = server
    box.files.write("f", iter([b"a", b"b"]))
    assert len(server.got) == 2 and server.got[1].content == b"ab"
    box.stop()
    box.start()
    assert len(server.got) == 6


def test_body_is_not_sent_in_parts(naps: list[float]) -> None:
    """What a refusal has taken of a body is not there for another try."""
    box = Script(gives(SANDBOX)).client().get("x")
    server = Script(says(429, "rate_limited"))
    box._http._client._transport = server
    with pytest.raises(agentbox.RateLimited):
        box.files.write("f", iter([b"a", b"b"]))
    assert len(server.got) == 1


@pytest.mark.parametrize("failure", [refused, lost, says(503, "unavailable"), says(429, "rate_limited")])
def test_request_with_a_key_is_sent_again(failure: Step, naps: list[float]) -> None:
    server = Script(failure, gives(SANDBOX, 201), failure, gives(RESULT), failure, gives(RESULT, 202))
    box = server.client().create(name="n")
    assert box.exec("echo hi").stdout == "hi"
    assert box.background("sleep 1").exec_id == "e"
    keys = [r.headers["idempotency-key"] for r in server.got]
    assert keys[0] == keys[1] and keys[2] == keys[3] and keys[4] == keys[5] and len(set(keys)) == 3
    assert [r.content for r in server.got[::2]] == [r.content for r in server.got[1::2]]


def test_key_of_the_caller(naps: list[float]) -> None:
    server = Script(lost, gives(SANDBOX, 201))
    server.client().create(idempotency_key="mine")
    assert [r.headers["idempotency-key"] for r in server.got] == ["mine", "mine"]


def test_silence_is_no_reason_to_ask_again(naps: list[float]) -> None:
    server = Script(late)
    with pytest.raises(agentbox.RequestTimeout) as e:
        server.client().create()
    assert isinstance(e.value, TimeoutError) and len(server.got) == 1


def test_retry_after(naps: list[float]) -> None:
    Script(says(429, "rate_limited", retry_after="3"), VERSION).client().version()
    assert 3 <= naps[0] <= 4.5
    server = Script(says(429, "rate_limited", retry_after="60"))
    with pytest.raises(agentbox.RateLimited) as e:
        server.client().version()
    assert e.value.retry_after == 60 and len(server.got) == 1 and e.value.request_id == "r"


@pytest.mark.parametrize("code", ["quota_exceeded", "limit_exceeded"])
def test_quota_is_told_at_once(code: str, naps: list[float]) -> None:
    server = Script(says(429, code, retry_after="1"))
    with pytest.raises(agentbox.RateLimited):
        server.client().create()
    assert len(server.got) == 1 and not naps


def test_refusals_are_told_at_once(naps: list[float]) -> None:
    for status in (400, 401, 403, 404, 409, 413, 416, 422, 500):
        server = Script(says(status))
        with pytest.raises(agentbox.AgentboxError):
            server.client().version()
        assert len(server.got) == 1


def test_redirects_are_not_followed() -> None:
    """They would get the key."""
    server = Script(says(307, location="http://elsewhere/"))
    with pytest.raises(agentbox.AgentboxError):
        server.client().version()
    assert len(server.got) == 1


def patience(request: httpx.Request) -> float | None:
    return request.extensions["timeout"]["read"]  # type: ignore[no-any-return]


def test_b048_no_hidden_deadline() -> None:
    """What waits for a command waits as long as the command may take."""
    server = Script(gives(SANDBOX, 201), gives(RESULT), gives(RESULT), gives(RESULT), VERSION)
    c = server.client(timeout=7)
    box = c.create()
    box.exec("sleep 75")
    box.exec("sleep 75", timeout=120)
    box.packages.pip("six")
    c.version()
    assert [patience(r) for r in server.got] == [None, None, 127, None, 7]
    assert json.loads(server.got[2].content) == {"command": "sleep 75", "timeout": 120}


def test_silent_command_whose_stream_breaks_again() -> None:
    """One whose streams last without an event does go on, however often they break."""

    class Lasting(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b'event: start\nid: 0-0\ndata: {"exec_id": "e"}\n\n'
            time.sleep(0.3)

    def breaks(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Lasting())

    def ends(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=f"event: exit\ndata: {json.dumps(RESULT)}\n\n")

    script = Script(lambda _: httpx.Response(200, json=SANDBOX), breaks, breaks, breaks, ends)
    with script.client(reconnect=0.2).get("box").stream("sleep 1") as output:
        assert output.wait().exit_code == 0
    assert not script.steps
