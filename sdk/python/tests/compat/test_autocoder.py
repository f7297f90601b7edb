"""autocoder's sandbox manager against a real server. R1, R4 … are ids of cases."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agentbox import errors
from agentbox.compat import SandboxInfo, SandboxManager

UNKNOWN = "sandbox-00000000"


@pytest.fixture
def run(server: str) -> Callable[[Callable[[SandboxManager, SandboxInfo], Awaitable[None]]], None]:
    """Runs a test with a manager and a sandbox."""

    def run(test: Callable[[SandboxManager, SandboxInfo], Awaitable[None]]) -> None:
        async def main() -> None:
            async with SandboxManager(server) as manager:
                made = await manager.create_sandbox("python", memory_limit="512m", cpu_limit="0.5")
                try:
                    await test(manager, made)
                finally:
                    await manager.destroy_sandbox(made.sandbox_id)

        asyncio.run(main())

    return run


Run = Callable[[Callable[[SandboxManager, SandboxInfo], Awaitable[None]]], None]


def test_r01_r04_r05_r12_life(run: Run) -> None:
    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        assert re.fullmatch("sandbox-[0-9a-f]{8}", made.sandbox_id) and re.fullmatch("[0-9a-f]{64}", made.container_id)
        assert (made.project_name, made.status, made.workspace_path, made.ports) == ("python", "running", "/workspace", {})
        assert made.resource_limits == {"memory": "512m", "cpu": "0.5"}
        assert abs(datetime.now(timezone.utc) - made.created_at) < timedelta(minutes=10)
        assert await manager.get_sandbox(made.sandbox_id) == made
        assert made in await manager.list_sandboxes("python") and made in await manager.list_sandboxes()
        assert made not in await manager.list_sandboxes("another")
        assert await manager.destroy_sandbox(made.sandbox_id) is True
        for sandbox_id in (made.sandbox_id, UNKNOWN):
            assert await manager.get_sandbox(sandbox_id) is None
            assert await manager.start_sandbox(sandbox_id) is False
            assert await manager.stop_sandbox(sandbox_id) is False
            assert await manager.destroy_sandbox(sandbox_id) is False
            calls: list[Awaitable[object]] = [
                manager.execute_command(sandbox_id, ["true"]),
                manager.copy_to_sandbox(sandbox_id, Path(__file__), "/workspace"),
                manager.copy_from_sandbox(sandbox_id, "/workspace", "."),
            ]
            for call in calls:
                with pytest.raises(ValueError, match=f"^Sandbox {sandbox_id} not found$"):
                    await call

    run(test)


def test_r07_r08_r09_execute(run: Run) -> None:
    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        assert await manager.execute_command(made.sandbox_id, ["sh", "-c", "echo out; echo err >&2; exit 7"]) == (7, "out\n", "err\n")
        assert await manager.execute_command(made.sandbox_id, ["echo", "a;b", "$HOME"]) == (0, "a;b $HOME\n", "")
        assert await manager.execute_command(made.sandbox_id, ["pwd"], workdir="/tmp") == (0, "/tmp\n", "")
        code, _, reason = await manager.execute_command(made.sandbox_id, ["no-such-program"])
        assert code == 127 and "no-such-program" in reason

    run(test)


def test_r10_r11_r14_stop_start_cleanup(run: Run) -> None:
    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        await manager.execute_command(made.sandbox_id, ["touch", "kept"])
        assert await manager.stop_sandbox(made.sandbox_id) and await manager.stop_sandbox(made.sandbox_id)
        with pytest.raises(RuntimeError, match=f"^Sandbox {made.sandbox_id} is not running$"):
            await manager.execute_command(made.sandbox_id, ["ls"])
        assert await manager.copy_to_sandbox(made.sandbox_id, __file__, "/workspace") is False
        assert await manager.start_sandbox(made.sandbox_id) and await manager.start_sandbox(made.sandbox_id)
        assert await manager.execute_command(made.sandbox_id, ["ls"]) == (0, "kept\n", "")
        assert await manager.stop_sandbox(made.sandbox_id)
        assert await manager.cleanup_stopped_sandboxes(older_than_hours=1000) == 0
        assert await manager.cleanup_stopped_sandboxes(older_than_hours=0) >= 1
        assert await manager.get_sandbox(made.sandbox_id) is None

    run(test)


def test_r13_keep_the_workspace(run: Run) -> None:
    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        await manager.execute_command(made.sandbox_id, ["sh", "-c", "echo kept >f"])
        assert await manager.destroy_sandbox(made.sandbox_id, remove_volume=False)
        again = await manager.create_sandbox("python", memory_limit="512m")
        assert await manager.execute_command(again.sandbox_id, ["cat", "f"]) == (0, "kept\n", "")
        assert await manager.destroy_sandbox(again.sandbox_id)

    run(test)


def test_r15_ports(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        served = await manager.create_sandbox("python-ports", memory_limit="512m", ports={"3000": port})
        assert served.ports == {"3000": port}
        with pytest.raises(RuntimeError, match="^Failed to create sandbox: .*" + str(port)):
            await manager.create_sandbox("python-ports", memory_limit="512m", ports={"3000": port})
        assert await manager.destroy_sandbox(served.sandbox_id)

    run(test)


def test_create_tells_what_is_wrong(server: str) -> None:
    async def main() -> None:
        async with SandboxManager(server) as manager:
            with pytest.raises(RuntimeError, match="^Failed to create sandbox: .*memory_limit"):
                await manager.create_sandbox("python", memory_limit="lots")
        async with SandboxManager("http://127.0.0.1:1") as nobody:
            with pytest.raises(errors.ConnectionFailed):
                await nobody.list_sandboxes()
        async with SandboxManager(server, api_key="abx_" + "0" * 40) as stranger:
            with pytest.raises(errors.Unauthenticated):
                await stranger.destroy_sandbox(UNKNOWN)

    asyncio.run(main())


def test_copy_files(run: Run, tmp_path: Path) -> None:
    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        async def sh(command: str) -> str:
            code, out, err = await manager.execute_command(made.sandbox_id, ["sh", "-c", command])
            assert code == 0, err
            return out

        async def to(local: str | Path, remote: str) -> bool:
            return await manager.copy_to_sandbox(made.sandbox_id, local, remote)

        async def back(remote: str, local: str | Path) -> bool:
            return await manager.copy_from_sandbox(made.sandbox_id, remote, local)

        here = tmp_path / "f.bin"
        here.write_bytes(b"\0\xff" * 100_000)
        assert await to(here, "/workspace") and await to(here, "/workspace/") and await to(here, "/workspace/new")
        assert await to(here, "tmp/relative")  # from the root on
        assert await sh("cmp f.bin new; cmp f.bin /tmp/relative; stat -c %U f.bin") == await sh("id -un")
        assert not await to(here, "/workspace/no/such/x") and not await to(here, "/workspace/no/")
        assert not await to(tmp_path / "nope", "/workspace")
        await sh("ln -s /tmp link")
        assert await to(here, "/workspace/link") and await sh("cmp f.bin /tmp/f.bin") == ""

        assert await back("/workspace/f.bin", tmp_path / "g") and (tmp_path / "g").read_bytes() == here.read_bytes()
        (tmp_path / "d").mkdir()
        assert await back("/workspace/f.bin", tmp_path / "d") and (tmp_path / "d/f.bin").read_bytes() == here.read_bytes()
        assert not await back("/workspace/nope", tmp_path) and not await back("/workspace/f.bin", tmp_path / "no/x")
        assert not await back("/workspace/f.bin", f"{tmp_path}/no/")

    run(test)


def test_copy_directories(run: Run, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/x").write_text("x")
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "link").symlink_to("sub/x")

    async def test(manager: SandboxManager, made: SandboxInfo) -> None:
        async def sh(command: str) -> str:
            code, out, err = await manager.execute_command(made.sandbox_id, ["sh", "-c", command])
            assert code == 0, err
            return out

        sandbox = made.sandbox_id
        assert await manager.copy_to_sandbox(sandbox, tree, "/workspace")  # is there: goes into it
        assert await manager.copy_to_sandbox(sandbox, tree, "/workspace/new")  # is not: becomes it
        assert await manager.copy_to_sandbox(sandbox, f"{tree}/.", "/workspace/new/sub")  # its content
        assert await sh("find . | sort") == "".join(
            f"{p}\n"
            for p in sorted(
                [".", "./new", "./new/link", "./new/run", "./new/sub", "./new/sub/link", "./new/sub/run", "./new/sub/sub", "./new/sub/sub/x"]
                + ["./new/sub/x", "./tree", "./tree/link", "./tree/run", "./tree/sub", "./tree/sub/x"]
            )
        )
        assert await sh("readlink tree/link; test -x tree/run") == "sub/x\n"
        assert not await manager.copy_to_sandbox(sandbox, tree, "/workspace/tree/run")

        await sh("ln -s /etc/passwd tree/out; ln -s ../../../.. tree/up; ln tree/run tree/hard; mkfifo tree/fifo")
        assert await manager.copy_from_sandbox(sandbox, "/workspace/tree", tmp_path / "back")
        assert await manager.copy_from_sandbox(sandbox, "/workspace/tree/", tmp_path / "back")
        assert await manager.copy_from_sandbox(sandbox, "/workspace/tree/.", tmp_path / "back/sub")
        for root in (tmp_path / "back", tmp_path / "back/tree", tmp_path / "back/sub"):
            # Links that lead out, and what is no file, are not made.
            assert sorted(p.name for p in root.iterdir()) >= ["hard", "link", "run", "sub"]
            assert not {"out", "up", "fifo"} & {p.name for p in root.iterdir()}
            assert (root / "link").readlink() == Path("sub/x") and (root / "sub/x").read_text() == "x"
            assert (root / "run").stat().st_mode & 0o777 == 0o755 and (root / "hard").read_text() == "#!/bin/sh\n"
        assert not await manager.copy_from_sandbox(sandbox, "/workspace/tree", tmp_path / "tree/run")

    run(test)
