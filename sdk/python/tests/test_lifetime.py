"""What is left of a program that ended within a ``with`` block."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

import agentbox

PROGRAM = {
    "sync": """
import agentbox, sys, time
with agentbox.Client() as c, c.create(name=sys.argv[1], idle_timeout=2, memory="160m") as box:
    print(box.id, flush=True)
    if sys.argv[2] == "exception": raise RuntimeError("mine")
    if sys.argv[2] == "exec": box.exec("sleep 600")
    time.sleep(600)
""",
    "async": """
import agentbox, asyncio, sys
async def main():
    async with agentbox.AsyncClient() as c, await c.create(name=sys.argv[1], idle_timeout=2, memory="160m") as box:
        print(box.id, flush=True)
        if sys.argv[2] == "exception": raise RuntimeError("mine")
        if sys.argv[2] == "exec": await box.exec("sleep 600")
        await asyncio.sleep(600)
asyncio.run(main())
""",
}


def begin(kind: str, *args: str) -> tuple[subprocess.Popen[str], str]:
    p = subprocess.Popen([sys.executable, "-c", PROGRAM[kind], *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout is not None
    box = p.stdout.readline().strip()
    if not box:
        raise AssertionError(p.communicate()[1])
    return p, box


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("end", ["exception", "INT", "TERM"])
def test_b165_block_destroys(client: agentbox.Client, name: str, kind: str, end: str) -> None:
    p, box = begin(kind, name, end if end == "exception" else "exec")
    if end != "exception":
        time.sleep(0.3)  # mostly within exec; before it is right, too
        p.send_signal(getattr(signal, "SIG" + end))
    _, err = p.communicate(timeout=120)
    assert p.returncode != 0
    if end == "exception":
        assert "RuntimeError: mine" in err
    with pytest.raises(agentbox.SandboxGone) as gone:
        client.get(box)
    assert gone.value.reason == "destroyed", err
    with client.create(name=name, memory="160m"):
        pass


def test_b165_kill(client: agentbox.Client, name: str) -> None:
    """Nobody can act on SIGKILL: the sandbox goes when it was idle, and another program is not in its way."""
    p, box = begin("sync", name, "sleep")
    p.kill()
    p.communicate()
    with client.create(memory="160m") as other:
        assert other.exec("echo fine").ok
    end = time.monotonic() + 120
    while True:
        try:
            client.get(box)
        except agentbox.SandboxGone as e:
            assert e.reason == "idle"
            break
        assert time.monotonic() < end
        time.sleep(0.2)
    with client.create(name=name, memory="160m"):
        pass


def test_handler_of_the_program_stays(client: agentbox.Client) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with client.create(memory="160m"):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before

    def mine(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    try:
        with client.create(memory="160m"):
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_own_error_says_more(client: agentbox.Client) -> None:
    with pytest.raises(RuntimeError, match="mine"), client.create(memory="160m") as box:
        box.destroy()
        raise RuntimeError("mine")
