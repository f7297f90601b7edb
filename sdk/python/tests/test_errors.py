"""Which error an answer is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentbox
from agentbox import errors
from agentbox._wire import error_of

PROBLEM = b'{"detail":"in words","code":"%s","request_id":"r1","field":"f","allowed":"a","reason":"idle"}'


#: What the clients of all languages make of codes and statuses.
TABLE: dict[str, dict[str, str]] = json.loads((Path(__file__).parents[2] / "errors.json").read_text())


@pytest.mark.parametrize(("code", "kind"), TABLE["codes"].items())
def test_codes(code: str, kind: str) -> None:
    e = error_of(400, {}, PROBLEM % code.encode())
    assert type(e).__name__ == kind
    assert (str(e), e.status, e.code, e.request_id, e.field, e.allowed, e.reason) == ("in words", 400, code, "r1", "f", "a", "idle")


@pytest.mark.parametrize(("status", "kind"), TABLE["statuses"].items())
def test_statuses(status: str, kind: str) -> None:
    """A code of a later version, or none, is what the status says."""
    for body in (PROBLEM % b"of_a_newer_server", b"<html>gateway</html>"):
        assert type(error_of(int(status), {}, body)).__name__ == kind


@pytest.mark.parametrize(("code", "kind"), TABLE["grpc"].items())
def test_grpc(code: str, kind: str) -> None:
    pytest.importorskip("grpc")
    from agentbox.rpc._channel import error_of as error_of_call
    from grpc import StatusCode

    e = error_of_call(Status(StatusCode[code]))  # type: ignore[arg-type]
    assert kind in [base.__name__ for base in type(e).__mro__[:2]]  # RequestTimeout is Unavailable


class Status(Exception):
    """A call that ended with a status."""

    def __init__(self, code: object) -> None:
        self.code = lambda: code
        self.details = lambda: "in words"
        self.initial_metadata = lambda: (("x-request-id", "r1"),)
        self.trailing_metadata = lambda: ()


@pytest.mark.parametrize("body", [b"", b"<html>gateway</html>", b"[]", b'"x"', b'{"detail":5}', b"\xff\xfe", b'{"detail":[]}', b'{"detail":[1]}'])
@pytest.mark.parametrize(("status", "kind"), [(502, errors.Unavailable), (404, errors.NotFound), (500, errors.ServerError), (307, errors.ServerError)])
def test_others_words(status: int, kind: type[errors.AgentboxError], body: bytes) -> None:
    """What stands before the server may answer in another form."""
    e = error_of(status, {"x-request-id": "r2"}, body)
    assert type(e) is kind and str(status) in str(e) and e.request_id == "r2"


def test_form() -> None:
    e = error_of(422, {}, b'{"detail":[{"type":"missing","loc":["body","command"],"msg":"it is missing","input":null}]}')
    assert isinstance(e, errors.InvalidArgument)
    assert str(e) == "body.command: it is missing" and e.errors[0]["type"] == "missing"


def test_numbers() -> None:
    e = error_of(416, {"x-first-offset": "77"}, PROBLEM % b"out_of_range")
    assert isinstance(e, errors.OutOfRange) and e.first_offset == 77
    e = error_of(429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, PROBLEM % b"rate_limited")
    assert isinstance(e, errors.RateLimited) and e.retry_after is None


def test_one_base() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), agentbox.AgentboxError)
        assert getattr(agentbox, name) is getattr(errors, name)
    assert issubclass(agentbox.RequestTimeout, TimeoutError)


def test_real(client: agentbox.Client, box: agentbox.Box) -> None:
    with pytest.raises(agentbox.NotFound, match="Sandbox not found"):
        client.get("nobody")
    with pytest.raises(agentbox.InvalidArgument) as e:
        box.exec("true", timeout=-1)
    assert e.value.field == "timeout" and e.value.allowed
    with pytest.raises(agentbox.InvalidArgument) as form:
        client.create(memory="much")
    assert form.value.errors and form.value.status == 422
    with agentbox.Client(api_key="abx_" + "0" * 40) as stranger, pytest.raises(agentbox.Unauthenticated):
        stranger.version() and list(stranger.list())
    for nothing in ("", ".", ".."):
        with pytest.raises(agentbox.InvalidArgument):
            client.get(nothing)


def test_nobody_there() -> None:
    with agentbox.Client("http://127.0.0.1:9", retries=1) as c, pytest.raises(agentbox.ConnectionFailed, match="at http://127.0.0.1:9:") as e:
        c.version()
    assert e.value.status is None and not e.value.sent


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://x", "http://", "http://user:pw@x", "http://x?y=1", "unix://x/y"])
def test_bad_url(url: str) -> None:
    with pytest.raises(ValueError, match="no URL of a server"):
        agentbox.Client(url)
