"""The end of a block destroys the session, however the block ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from conftest import Relay

import agentbox
from agentbox import errors

PROGRAMS = {
    "sync": """
import os, signal, sys
from agentbox import Sandbox
with Sandbox(sys.argv[1]) as sandbox:
    print(sandbox.create().session_id, flush=True)
    if sys.argv[2] == "exception":
        raise ValueError("as it goes")
    sandbox.exec("sleep 600", timeout=900)
""",
    "async": """
import asyncio, sys
from agentbox import AsyncSandbox
async def main():
    async with AsyncSandbox(sys.argv[1]) as sandbox:
        print((await sandbox.create()).session_id, flush=True)
        if sys.argv[2] == "exception":
            raise ValueError("as it goes")
        await sandbox.exec("sleep 600", timeout=900)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("form", sorted(PROGRAMS))
@pytest.mark.parametrize("how", ["exception", "SIGINT", "SIGTERM"])
def test_block_destroys(client: agentbox.Client, server: str, form: str, how: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAMS[form], server, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout
    session = program.stdout.readline().strip()
    if how != "exception":
        program.send_signal(signal.Signals[how])
    _, said = program.communicate(timeout=120)
    assert program.returncode != 0 and ("as it goes" in said) == (how == "exception")
    with pytest.raises(errors.NotFound):
        client.get(session)


def test_the_error_of_the_block_is_told(client: agentbox.Client, relay: Relay) -> None:
    """Not that of the end, which can't reach the server any more either."""
    with pytest.raises(ValueError, match="as it goes"), agentbox.Sandbox(relay.url) as sandbox:
        info = sandbox.create()
        relay.cut(away=True)
        raise ValueError("as it goes")
    client.get(info.session_id).destroy()
