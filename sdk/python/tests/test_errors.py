"""Which error an answer is."""

from __future__ import annotations

import pytest

import agentbox
from agentbox import errors
from agentbox._wire import error_of

PROBLEM = b'{"detail":"in words","code":"%s","request_id":"r1","field":"f","allowed":"a","reason":"idle"}'


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_value", errors.InvalidArgument),
        (400, "invalid_request", errors.InvalidArgument),
        (400, "unsupported", errors.Unsupported),
        (401, "unauthenticated", errors.Unauthenticated),
        (403, "forbidden", errors.PermissionDenied),
        (404, "not_found", errors.NotFound),
        (404, "sandbox_destroyed", errors.SandboxGone),
        (404, "sandbox_expired", errors.SandboxGone),
        (405, "method_not_allowed", errors.AgentboxError),
        (408, "timeout", errors.Unavailable),
        (409, "not_running", errors.NotRunning),
        (409, "already_exists", errors.AlreadyExists),
        (409, "conflict", errors.Conflict),
        (413, "too_large", errors.TooLarge),
        (415, "unsupported_media_type", errors.InvalidArgument),
        (416, "out_of_range", errors.OutOfRange),
        (429, "limit_exceeded", errors.RateLimited),
        (429, "quota_exceeded", errors.RateLimited),
        (429, "rate_limited", errors.RateLimited),
        (499, "canceled", errors.AgentboxError),
        (503, "unavailable", errors.Unavailable),
        (500, "internal", errors.ServerError),
        (409, "of_a_newer_server", errors.Conflict),
        (418, "of_a_newer_server", errors.AgentboxError),
    ],
)
def test_kinds(status: int, code: str, kind: type[errors.AgentboxError]) -> None:
    e = error_of(status, {}, PROBLEM % code.encode())
    assert type(e) is kind
    assert (str(e), e.status, e.code, e.request_id, e.field, e.allowed, e.reason) == ("in words", status, code, "r1", "f", "a", "idle")


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
