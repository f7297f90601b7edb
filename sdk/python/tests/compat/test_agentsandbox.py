"""AgentSandbox's client and agent tools against a real server. Q1, Q4 … are ids of cases."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agentbox import errors
from agentbox.compat import AgentSandboxClient, list_directory, read_file, remove_workspace, run_command, write_file

NO_URL = "Error: agent_sandbox_url not found in tool configuration."


@pytest.fixture
def config(server: str) -> Iterator[dict[str, Any]]:
    config = {"agent_sandbox_url": server}
    yield config
    remove_workspace(config)


def test_q01_q04_q06_q12_client(server: str) -> None:
    async def main() -> None:
        client = AgentSandboxClient(server)
        made = await client.create_sandbox()
        assert made and re.fullmatch("[0-9a-f]{64}", made)
        result = await client.execute_command(made, "echo hi; echo err >&2 | cat; exit 3")
        assert result and (result["exit_code"], result["output"]) == (3, "hi\nerr\n")
        piped = await client.execute_command(made, "echo a | tr a b")
        assert piped and piped["output"] == "b\n"
        await client.remove_sandbox(made)
        await client.remove_sandbox(made)  # reported, not raised
        assert await client.execute_command(made, "true") is None
        await client.close()

    asyncio.run(main())


def test_q07_unknown(server: str) -> None:
    async def main() -> None:
        client = AgentSandboxClient(server + "/")
        for unknown in ("nope", "0" * 64, "a/b", ""):
            assert await client.execute_command(unknown, "true") is None
        await client.close()

    asyncio.run(main())


def test_q08_q10_q11_files(server: str) -> None:
    async def main() -> None:
        client = AgentSandboxClient(server)
        made = await client.create_sandbox()
        assert made
        await client.upload_file(made, "sub/dir/f.bin", b"\0\xff")
        assert await client.download_file(made, "sub/dir/f.bin") == b"\0\xff"
        await client.execute_command(made, "ln -s /etc/passwd link")
        for lost in ("nope", "sub", "../../etc/passwd", "link"):
            with pytest.raises(errors.NotFound, match="^File not found in sandbox$"):
                await client.download_file(made, lost)
        await client.remove_sandbox(made)
        await client.close()

    asyncio.run(main())


def test_no_server() -> None:
    async def main() -> None:
        client = AgentSandboxClient("http://127.0.0.1:1")
        assert await client.create_sandbox() is None
        assert await client.execute_command("x", "true") is None
        await client.remove_sandbox("x")
        await client.close()

    asyncio.run(main())
    config = {"agent_sandbox_url": "http://127.0.0.1:1"}
    assert run_command("true", config) == read_file("f", config) == "Error: Failed to create sandbox environment."


def test_wrong_key(server: str) -> None:
    config = {"agent_sandbox_url": server, "agent_sandbox_api_key": "abx_" + "0" * 40}
    assert run_command("true", config) == "Error: Failed to create sandbox environment."


def test_run_command_has_a_sandbox_of_its_own(config: dict[str, Any]) -> None:
    said = run_command("echo out; echo err >&2; touch f; exit 3", config)
    assert said in [f"Exit Code: 3\n--- OUTPUT ---\n{output}" for output in ("out\nerr\n", "err\nout\n")]
    assert run_command("ls", config) == "Exit Code: 0\n--- OUTPUT ---\n"
    assert list(config) == ["agent_sandbox_url"]


def test_tools_without_an_address() -> None:
    for config in (None, {}, {"agent_sandbox_url": ""}):
        assert run_command("true", config) == NO_URL
        assert read_file("f", config) == write_file("f", "", config) == list_directory(".", config) == NO_URL


def test_tools_share_a_sandbox(config: dict[str, Any]) -> None:
    assert list_directory(config=config) == "Contents of '.':\nDirectories:\n  (none)\n\nFiles:\n  (none)"
    assert write_file("src/main.py", "print('é')\n", config) == "Successfully wrote 11 characters to 'src/main.py'."
    assert write_file("src/main.py", "print(6*7)\n", config) == "Successfully wrote 11 characters to 'src/main.py'."
    assert run_command("python3 src/main.py", config) == "Exit Code: 0\n--- OUTPUT ---\n42\n"
    assert read_file("src/main.py", config) == read_file("/workspace/src/main.py", config) == "print(6*7)\n"
    run_command("ln -s src todir; ln -s src/main.py tofile; ln -s nope dangling; touch 'a b'; mkdir z", config)
    assert list_directory("", config) == "Contents of '':\nDirectories:\n- src/\n- todir/\n- z/\n\nFiles:\n- a b\n- tofile"
    assert list_directory("todir", config) == "Contents of 'todir':\nDirectories:\n  (none)\n\nFiles:\n- main.py"


def test_tools_tell_what_is_wrong(config: dict[str, Any]) -> None:
    assert read_file("nope", config) == "Error: File not found at 'nope'."
    assert read_file(".", config) == "Error: File not found at '.'."
    assert list_directory("nope", config) == "Error: Directory not found at 'nope'."
    run_command("printf '\\377' >binary; mkdir d", config)
    assert read_file("binary", config).startswith("Error: An unexpected error occurred while reading the file: ")
    assert write_file("d", "x", config).startswith("Error: An unexpected error occurred while writing the file: ")
    assert write_file("", "x", config).startswith("Error: An unexpected error occurred while writing the file: ")


def test_q09_q11_tools_stay_in_the_workspace(config: dict[str, Any]) -> None:
    for path in ("..", "../x", "a/../../x", "/etc/passwd", "/workspace_evil/x"):
        refused = f"Error: Path '{path}' is outside the allowed workspace."
        assert read_file(path, config) == write_file(path, "x", config) == list_directory(path, config) == refused
    assert "agent_sandbox_id" not in config  # nothing was asked of the server
    write_file("f", "", config)
    run_command("ln -s /etc etc; ln -s /etc/passwd passwd; ln -s /tmp/x out", config)
    assert list_directory("etc", config) == "Error: Path 'etc' is outside the allowed workspace."
    assert read_file("passwd", config) == "Error: File not found at 'passwd'."
    assert read_file("etc/passwd", config) == "Error: File not found at 'etc/passwd'."
    for path in ("etc/new", "out"):
        assert write_file(path, "x", config) == f"Error: Path '{path}' is outside the allowed workspace."


def test_tools_in_a_running_loop(config: dict[str, Any]) -> None:
    async def main() -> str:
        return run_command("echo hi", config)

    assert asyncio.run(main()) == "Exit Code: 0\n--- OUTPUT ---\nhi\n"


def test_tools_when_the_sandbox_is_gone(config: dict[str, Any]) -> None:
    write_file("f", "x", config)
    gone = dict(config)
    remove_workspace(config)
    assert "agent_sandbox_id" not in config
    assert run_command("true", gone) == "Error: Failed to execute command in sandbox."
    assert read_file("f", gone).startswith("Error: An unexpected error occurred while reading the file: ")
    gone.pop("agent_sandbox_id")
