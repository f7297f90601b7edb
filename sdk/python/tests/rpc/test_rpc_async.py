"""The class for asyncio against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agentbox import AsyncSandbox, errors


def test_everything(server: str) -> None:
    async def main() -> None:
        async with AsyncSandbox(server) as sandbox:
            assert await sandbox.destroy() is False
            info = await sandbox.create()
            assert info.session_id == sandbox.session_id and sandbox.network_enabled
            await sandbox.write_file("f", "x")
            await sandbox.write_file("f", "y", mode="a")
            assert await sandbox.read_file("f") == "xy"
            with pytest.raises(errors.NotFound, match="Failed to read file: File not found"):
                await sandbox.read_file("nope")
            assert (await sandbox.exec("pwd", workdir="/tmp")).stdout == "/tmp\n"
            assert [(m.type, m.data) async for m in sandbox.exec_stream("echo a")] == [("stdout", "a\n"), ("exit", "")]
            assert (await sandbox.run_python("print(1)")).stdout == "1\n"
            assert "_temp" not in (await sandbox.exec("ls -A")).stdout
            assert (await sandbox.pip_install(["a b"])).stderr == "Invalid package specifier: a b"
            session = sandbox.session_id
        async with AsyncSandbox(server) as after:  # the end of the with destroyed it
            await after.create(session_id=session)
            assert (await after.exec("ls -A")).stdout == ""

    asyncio.run(main())


def test_c5_calls_without_a_session(server: str) -> None:
    async def main() -> None:
        async with AsyncSandbox(server) as sandbox:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: sandbox.exec("true"),
                lambda: sandbox.write_file("f", ""),
                lambda: sandbox.read_file("f"),
                lambda: sandbox.pip_install(["six"]),
                lambda: sandbox.run_python("1"),
            ]
            for call in calls:
                with pytest.raises(errors.Conflict, match=r"^No active session\. Call create\(\) first\.$"):
                    await call()
            with pytest.raises(errors.Conflict):
                sandbox.exec_stream("true")

    asyncio.run(main())


def test_c6_run_python_removes_its_file_when_it_is_cancelled(server: str) -> None:
    async def main() -> None:
        async with AsyncSandbox(server) as sandbox:
            await sandbox.create()
            running = asyncio.create_task(sandbox.run_python("import time; open('begun', 'w'); time.sleep(600)", timeout=900))
            while not (await sandbox.exec("cat begun")).exit_code == 0:
                await asyncio.sleep(0.05)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert "_temp" not in (await sandbox.exec("ls -A")).stdout

    asyncio.run(asyncio.wait_for(main(), 120))


def test_many_at_once(server: str) -> None:
    async def main() -> None:
        async with AsyncSandbox(server) as sandbox:
            await sandbox.create()
            results = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n in range(20)))
            assert [r.stdout for r in results] == [f"{n}\n" for n in range(20)]

    asyncio.run(main())
