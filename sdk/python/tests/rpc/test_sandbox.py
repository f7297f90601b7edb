"""The documented class against a real server. C5, C6, C7 and B250 are ids of cases."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator

import pytest

from agentbox import AsyncSandbox, Sandbox, errors
from agentbox.rpc._session import SCRIPT

NO_SESSION = "No active session. Call create() first."


@pytest.fixture
def sandbox(server: str) -> Iterator[Sandbox]:
    """A sandbox with a session."""
    with Sandbox(server) as made:
        made.create()
        yield made


def test_life(server: str) -> None:
    with Sandbox(server) as sandbox:
        assert (sandbox.session_id, sandbox.allowed_hosts, sandbox.network_enabled) == (None, [], False)
        assert sandbox.destroy() is False
        info = sandbox.create()
        assert info.session_id == sandbox.session_id and len(info.container_id) == 12 and info.status == "running"
        assert "pypi.org" in sandbox.allowed_hosts and sandbox.network_enabled
        sandbox.allowed_hosts.clear()  # a copy
        assert sandbox.allowed_hosts
        with Sandbox(server) as same:
            assert same.create(session_id=info.session_id).container_id == info.container_id
        assert sandbox.exec("true").stderr == "Session not found"  # the second with ended it
        assert sandbox.destroy() is False  # it is gone
        assert sandbox.session_id is None


def test_create_options(server: str) -> None:
    with Sandbox(server) as sandbox:
        info = sandbox.create("python-options", tenant_id="acme", allowed_hosts=["example.com", "*.example.org"])
        assert (info.session_id, info.tenant_id) == ("python-options", "acme")
        assert sandbox.allowed_hosts == ["example.com", "*.example.org"]
        assert sandbox.destroy() is True
        with pytest.raises(errors.InvalidArgument) as refused:
            sandbox.create("a/b")
        assert refused.value.request_id and sandbox.session_id is None


def test_exec(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; pwd; exit 7", workdir="/tmp")
    assert (result.exit_code, result.stdout, result.stderr, result.timed_out) == (7, "out\n/tmp\n", "err\n", False)
    late = sandbox.exec("echo begun; sleep 60", timeout=1)
    assert (late.exit_code, late.stdout, late.stderr, late.timed_out) == (-1, "begun\n", "Command timed out", True)


def test_stream(sandbox: Sandbox) -> None:
    messages = [(m.type, m.data, m.exit_code if m.HasField("exit_code") else None) for m in sandbox.exec_stream("echo a; pwd; exit 4", "/tmp")]
    assert "".join(data for kind, data, _ in messages if kind == "stdout") == "a\n/tmp\n"
    assert messages[-1] == ("exit", "", 4)


def test_stream_is_live_and_ends_with_its_reader(sandbox: Sandbox) -> None:
    stream = sandbox.exec_stream("echo first; sleep 600; echo never")
    assert next(stream).data == "first\n"  # before the command's end
    while sandbox.exec("pgrep -x sleep").exit_code != 0:
        pass  # not yet
    stream.close()  # type: ignore[attr-defined]  # a generator
    limit = time.monotonic() + 30
    while sandbox.exec("pgrep -x sleep").exit_code == 0:
        assert time.monotonic() < limit, "the command goes on"


def test_files(sandbox: Sandbox) -> None:
    sandbox.write_file("a/b.txt", "1\n")
    sandbox.write_file("a/b.txt", "2 é\n", mode="a")
    assert sandbox.read_file("a/b.txt") == "1\n2 é\n" == sandbox.read_file("/workspace/a/b.txt")
    sandbox.write_file("empty", "")
    assert sandbox.read_file("empty") == ""
    sandbox.exec("printf '\\377' >binary")
    cases: list[tuple[type[errors.AgentboxError], str, Callable[[], object]]] = [
        (errors.NotFound, "Failed to read file: File not found", lambda: sandbox.read_file("nope")),
        (errors.InvalidArgument, "Failed to read file: File is not valid UTF-8 text", lambda: sandbox.read_file("binary")),
        (errors.PermissionDenied, "Failed to read file: Path not allowed", lambda: sandbox.read_file("/etc/passwd")),
        (errors.PermissionDenied, "Failed to write file: Path not allowed", lambda: sandbox.write_file("../x", "x")),
        (errors.InvalidArgument, "Failed to write file: Invalid mode", lambda: sandbox.write_file("x", "x", mode="x")),  # type: ignore[arg-type]
        (errors.AgentboxError, "Failed to write file: [Errno 21] Is a directory: '/workspace/a'", lambda: sandbox.write_file("a", "x")),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind) as raised:
            call()
        assert str(raised.value) == text


def test_c5_calls_without_a_session(server: str) -> None:
    with Sandbox(server) as sandbox:
        calls: list[Callable[[], object]] = [
            lambda: sandbox.exec("true"),
            lambda: sandbox.exec_stream("true"),
            lambda: sandbox.write_file("f", ""),
            lambda: sandbox.read_file("f"),
            lambda: sandbox.pip_install(["six"]),
            lambda: sandbox.run_python("1"),
        ]
        for call in calls:
            with pytest.raises(errors.Conflict) as raised:
                call()
            assert str(raised.value) == NO_SESSION


def test_c6_run_python_removes_its_file(sandbox: Sandbox) -> None:
    assert sandbox.run_python("print(6 * 7)").stdout == "42\n"
    assert SCRIPT not in sandbox.exec("ls -A").stdout
    assert sandbox.run_python("raise SystemExit(3)").exit_code == 3
    assert SCRIPT not in sandbox.exec("ls -A").stdout
    assert sandbox.run_python("import time; time.sleep(60)", timeout=1).timed_out
    assert SCRIPT not in sandbox.exec("ls -A").stdout
    # Nor does it matter that it is gone, or that it can't be removed.
    assert sandbox.run_python(f"import os; os.remove({SCRIPT!r}); os.mkdir({SCRIPT!r}); print(1)").stdout == "1\n"


def test_c6_run_python_tells_of_a_session_that_is_gone(sandbox: Sandbox, server: str) -> None:
    with Sandbox(server) as other:
        other.create(session_id=sandbox.session_id)
    with pytest.raises(errors.NotFound, match="^Failed to write file: Session not found$"):
        sandbox.run_python("print(1)")


def test_c7_pip_install_names_the_missing_hosts(server: str) -> None:
    with Sandbox(server) as sandbox:
        for hosts, missing in (
            (["example.com"], "pypi.org, files.pythonhosted.org"),
            (["pypi.org"], "files.pythonhosted.org"),
            (["files.pythonhosted.org"], "pypi.org"),
        ):
            sandbox.create(allowed_hosts=hosts)
            with pytest.raises(errors.PermissionDenied) as raised:
                sandbox.pip_install(["six"])
            assert str(raised.value) == f"pip install requires {missing} in allowed_hosts"
            sandbox.destroy()
        sandbox.create(allowed_hosts=["pypi.org", "files.pythonhosted.org"])
        refused = sandbox.pip_install(["-r x"])  # both hosts: the server judges
        assert (refused.exit_code, refused.stderr) == (-1, "Invalid package specifier: -r x")


def test_b250_texts_up_to_the_documented_limit(sandbox: Sandbox) -> None:
    for size in (4_300_000, 5 << 20, 20 << 20):
        text = "é" * (size // 2)
        sandbox.write_file("big", text)
        assert sandbox.read_file("big") == text
        result = sandbox.exec("cat big")
        if size < 10_000_000:
            assert (result.stdout, result.truncated) == (text, False)
        else:
            assert result.truncated and result.stdout.endswith("... [output truncated]")
    with pytest.raises(errors.TooLarge, match=f"larger than configured max {64 << 20}"):
        sandbox.write_file("big", "x" * (64 << 20))


def test_nobody_answers() -> None:
    with Sandbox("http://localhost:1") as sandbox, pytest.raises(errors.ConnectionFailed):
        sandbox.create()


def test_addresses() -> None:
    for wrong in ("ftp://localhost", "http://", "http://localhost/path", "http://user@localhost"):
        with pytest.raises(ValueError, match="the address of a server"):
            Sandbox(wrong)


def test_key(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are asked for must be right; one that is given goes before the environment's."""
    monkeypatch.setenv("AGENTBOX_API_KEY", "abx_" + "0" * 40)
    for key in (None, "abx_" + "1" * 40):
        with Sandbox(server, api_key=key) as sandbox:
            try:
                sandbox.create()
            except errors.Unauthenticated:
                continue
            pytest.skip("the server asks for no keys")


def test_both_classes_have_the_same_members() -> None:
    def members(of: type) -> dict[str, list[str]]:
        return {name: list(inspect.signature(f).parameters) for name, f in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    assert members(Sandbox) == members(AsyncSandbox)
