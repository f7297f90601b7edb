"""The asynchronous client does what the blocking one does; it is what the latter is made from."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import agentbox
from agentbox import AsyncBox, AsyncClient

ROOT = Path(__file__).resolve().parent.parent


def in_box(test: Callable[[AsyncClient, AsyncBox], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient() as client, await client.create() as box:
            await test(client, box)

    asyncio.run(main())


def test_blocking_client_is_current() -> None:
    out = subprocess.run([sys.executable, "tools/unasync.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr


def test_same_members() -> None:
    for name in agentbox.__all__:
        if not hasattr(agentbox, "Async" + name):
            continue
        blocking, asynchronous = getattr(agentbox, name), getattr(agentbox, "Async" + name)
        names = [n for n in dir(blocking) if not n.startswith("_")]
        assert names == [n for n in dir(asynchronous) if not n.startswith("_")]
        for n in names:
            assert inspect.getdoc(getattr(blocking, n)), f"{name}.{n} has no documentation"
        assert inspect.getdoc(blocking)


def test_types() -> None:
    """The package is fully typed."""
    out = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", os.devnull], cwd=ROOT, capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr


def test_commands(server: str) -> None:
    async def test(client: AsyncClient, box: AsyncBox) -> None:
        assert (await box.exec("echo hi; exit 3")).exit_code == 3
        stream = await box.stream("cat; exit 4", open_stdin=True)
        await stream.process().write(b"in")
        await stream.process().close_stdin()
        events = [e async for e in stream]
        assert [e.type for e in events] == ["stdout", "exit"] and stream.result and stream.result.exit_code == 4
        process = await box.background("echo begun; sleep 600")
        attached = await process.attach()
        assert (await anext(aiter(attached))).text == "begun\n"
        await process.kill()
        assert (await attached.wait()).signal == 9 and (await process.wait()).stdout == "begun\n"
        assert b"".join([p async for p in process.output()]) == b"begun\n"
        with pytest.raises(TimeoutError):
            await (await box.background("sleep 600")).wait(timeout=0.2)
        assert process.exec_id in [p.exec_id async for p in box.processes()]

    in_box(test)


def test_cancelled(server: str) -> None:
    """Cancelling a call ends it, and the client is good for others."""

    async def test(client: AsyncClient, box: AsyncBox) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(box.exec("sleep 600"), 0.3)
        assert (await box.exec("echo still")).stdout == "still\n"

    in_box(test)


def test_files(server: str, tmp_path: Path) -> None:
    async def test(client: AsyncClient, box: AsyncBox) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield os.urandom(100_000)

        seen: list[tuple[int, int | None]] = []
        await box.files.write("f", pieces(), progress=lambda done, total: seen.append((done, total)))
        assert seen[-1] == (800_000, None) and (await box.files.stat("f")).size == 800_000
        await box.files.download("f", tmp_path / "f")
        await box.files.upload(tmp_path / "f", "g")
        await box.files.write("h", io.BytesIO((tmp_path / "f").read_bytes()))
        assert await box.files.read("g") == await box.files.read("h") == (tmp_path / "f").read_bytes()
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "x").write_text("x")
        await box.files.upload(tmp_path / "d", "d")
        await box.files.download("d", tmp_path / "back")
        assert (tmp_path / "back" / "x").read_text() == "x"
        assert [f.name async for f in box.files.list("d")] == ["x"]

    in_box(test)


def test_sockets(server: str) -> None:
    async def test(client: AsyncClient, box: AsyncBox) -> None:
        async with await box.terminal("stty size; exit 6", cols=99, rows=11) as t:
            assert b"".join([d async for d in t]) == b"11 99\r\n" and t.result and t.result.exit_code == 6
        await box.files.write("index.html", "inside")
        await box.background("python3 -m http.server 8000")
        while not [p for p in await box.ports() if p.port == 8000]:
            await asyncio.sleep(0.05)
        async with await box.connect(8000) as c:
            await c.write(b"GET / HTTP/1.0\r\n\r\n")
            assert b"".join([d async for d in c]).endswith(b"inside")
        async with await box.forward(8000) as f:
            for _ in range(2):
                reader, writer = await asyncio.open_connection(f.host, f.port)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                assert (await reader.read()).endswith(b"inside")
                writer.close()
            reader, writer = await asyncio.open_connection(f.host, f.port)
        assert await reader.read() == b""
        writer.close()

    in_box(test)
