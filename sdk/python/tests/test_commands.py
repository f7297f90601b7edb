"""Commands on a real server."""

from __future__ import annotations

import threading
import time

import pytest

import agentbox

from conftest import Relay

E_ACUTE = (
    "import os;b=('é'*200001).encode()\n"
    "[os.write(1,b[i:i+4097]) for i in range(0,len(b),4097)]"
)


def texts(stream: agentbox.Stream) -> dict[str, str]:
    got = {"stdout": "", "stderr": ""}
    for event in stream:
        if event.type != "exit":
            got[event.type] += event.text
    return got


def test_result(box: agentbox.Box) -> None:
    r = box.exec("echo out; echo err >&2; exit 3", timeout=60)
    assert (r.exit_code, r.stdout, r.stderr, r.timed_out, r.truncated.stdout, r.ok) == (3, "out\n", "err\n", False, False, False)
    assert sorted(r.output.split()) == ["err", "out"] and 0 < r.duration < 60 and r.signal is None
    r = box.exec(["sh", "-c", 'echo "$1 $PWD $A"; id -un; cat', "-", "a b"], workdir="/tmp", env={"A": "x"}, user="root", stdin="in")
    assert r.stdout == "a b /tmp x\nroot\nin"
    r = box.exec("cat", stdin=b"\xff\x00")
    assert r.stdout_bytes == b"\xff\x00" and r.stdout == "\ufffd\0"
    r = box.exec("kill -9 $$")
    assert (r.exit_code, r.signal) == (137, 9)
    r = box.exec("echo begun; sleep 600", timeout=1)
    assert r.timed_out and r.exit_code == -1 and r.stdout == "begun\n"
    r = box.exec("yes | head -c 100000", max_output=1000)
    assert r.truncated.stdout and len(r.stdout_bytes) == 1000 and r.ok


def test_b043_exit_codes(box: agentbox.Box) -> None:
    box.sessions.create("b043")
    for code in (0, 3, 255):
        line = f"exit {code}"
        assert box.exec(line).exit_code == code
        assert box.stream(line).wait().exit_code == code
        assert box.background(line).wait(timeout=60).exit_code == code
        assert box.exec(f"(exit {code})", session="b043").exit_code == code
        with box.terminal(line) as t:
            assert b"".join(t) == b"" and t.result and t.result.exit_code == code


def test_b027_characters_in_parts(box: agentbox.Box) -> None:
    """Pieces end between characters, so their texts are the whole text."""
    box.files.write("e.py", E_ACUTE)
    for stream in (box.stream("python3 e.py"), box.background("python3 e.py").attach()):
        assert texts(stream)["stdout"] == "é" * 200001
    box.files.write("split.py", "import os,time\nfor b in '€'.encode(): os.write(1, bytes([b])); time.sleep(0.05)\nos.write(2, b'\\xe2\\x82')")
    got = texts(box.stream("python3 split.py"))
    assert got == {"stdout": "€", "stderr": "\ufffd"}


def test_b075_program_that_is_not_there(box: agentbox.Box) -> None:
    events = list(box.stream(["/nonexistent"]))
    last = events[-1]
    assert last.type == "exit" and last.result.exit_code == 127 and "/nonexistent" in last.result.reason


def test_b037_lost_stream_is_no_result(relay: Relay, box: agentbox.Box) -> None:
    """When nobody knows how a command ended there is an error, and no exit code."""
    with agentbox.Client(relay.url, retries=0, reconnect=0.5) as c:
        stream = c.get(box.id).stream("echo begun; sleep 5; exit 0")
        events = iter(stream)
        first = next(events)
        assert first.type == "stdout" and first.text == "begun\n"
        relay.cut(away=True)
        with pytest.raises(agentbox.ConnectionFailed):
            list(events)
        assert stream.result is None
        with pytest.raises(agentbox.AgentboxError):
            stream.wait()
        with pytest.raises(agentbox.ConnectionFailed):
            c.get(box.id)


def test_stream_goes_on(relay: Relay, box: agentbox.Box) -> None:
    """A connection that breaks loses nothing and doubles nothing."""
    box.files.write("lines.py", "import time\nfor i in range(400): print(f'line-{i}-é', flush=True); time.sleep(0.005)\nexit(9)")
    with agentbox.Client(relay.url) as c:
        stream = c.get(box.id).stream("python3 lines.py")
        text, cuts = "", 0
        for event in stream:
            if event.type == "exit":
                break
            text += event.text
            if len(text) > 1200 * (cuts + 1) and cuts < 3:
                cuts += 1
                relay.cut()
        assert cuts == 3
        assert text == "".join(f"line-{i}-é\n" for i in range(400))
        assert stream.result and stream.result.exit_code == 9


def test_exec_goes_on(relay: Relay, box: agentbox.Box) -> None:
    """A command whose connection broke is not run twice, and its result is not lost."""
    with agentbox.Client(relay.url) as c:
        far = c.get(box.id)
        timer = threading.Timer(0.7, relay.cut)
        timer.start()
        r = far.exec("echo x >>ran; sleep 2; cat ran")
        timer.join()
    assert r.stdout == "x\n" and relay.dialled >= 2


def test_answer_given_again_is_whole(box: agentbox.Box, name: str) -> None:
    line = "head -c 300000 /dev/zero; head -c 100 /dev/zero >&2"
    first, again = (box.exec(line, idempotency_key=name) for _ in range(2))
    assert first.exec_id == again.exec_id
    assert len(again.stdout_bytes) == 300_000 and len(again.stderr_bytes) == 100 and not again.truncated.stdout


def test_closed_stream_ends_its_command(box: agentbox.Box) -> None:
    with box.stream("echo begun; sleep 600", on_disconnect="kill_now") as stream:
        for event in stream:
            break
    end = stream.process().wait(timeout=60)
    assert end.signal == 9


def test_input(box: agentbox.Box) -> None:
    stream = box.stream("cat; echo end >&2", open_stdin=True)
    stream.process().write(b"one ")
    stream.process().write("two")
    stream.process().close_stdin()
    assert texts(stream) == {"stdout": "one two", "stderr": "end\n"}


def test_background(box: agentbox.Box) -> None:
    p = box.background("for i in 1 2 3; do echo $i; done; echo e >&2; sleep 600")
    with pytest.raises(TimeoutError):
        p.wait(timeout=0.3)
    assert p.info().state == "running" and p.exec_id in [x.exec_id for x in box.processes()]
    until = time.monotonic() + 60
    while b"".join(p.output(stream="stdout")) != b"1\n2\n3\n":
        assert time.monotonic() < until
    assert b"".join(p.output(stream="stdout", offset=2)) == b"2\n3\n"
    with pytest.raises(agentbox.OutOfRange):
        b"".join(p.output(stream="stdout", offset=1000))
    attached = box.process(p.exec_id).attach(stdout_offset=4)
    p.kill()
    got = texts(attached)
    assert got["stdout"] == "3\n" and attached.result and attached.result.signal == 9
    p.kill()  # one that has ended
    assert p.wait().signal == 9 and p.info().state == "ended"
    q = box.background("trap 'echo got; exit 4' TERM; echo ready; while :; do sleep 0.1; done")
    for piece in q.output(follow=True):
        if b"ready" in piece:
            q.signal("TERM")
    assert q.wait().exit_code == 4 and q.wait().stdout == "ready\ngot\n"


def test_large_output(box: agentbox.Box) -> None:
    """Default options take what the server keeps by default."""
    r = box.exec("head -c 9000000 /dev/zero")
    assert len(r.stdout_bytes) == 9_000_000 and not r.truncated.stdout
    n = 0
    for event in box.stream("head -c 12000000 /dev/zero"):
        if event.type == "stdout":
            assert event.offset == n
            n += len(event.data)
    assert n == 12_000_000


def test_session(box: agentbox.Box) -> None:
    box.sessions.create("shell")
    box.exec("cd /tmp; x=5; f() { echo f-$1; }", session="shell")
    assert box.exec("pwd; echo $x; f y", session="shell").stdout == "/tmp\n5\nf-y\n"
    assert texts(box.stream("echo $x", session="shell"))["stdout"] == "5\n"
    assert "shell" in [s.name for s in box.sessions.list()]
    with pytest.raises(agentbox.AlreadyExists):
        box.sessions.create("shell")
    box.sessions.remove("shell")
    with pytest.raises(agentbox.NotFound):
        box.exec("true", session="shell")
