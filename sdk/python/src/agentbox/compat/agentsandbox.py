"""The Python client and the agent tools of AgentSandbox, with files in the sandbox, too.

The tools are functions of an agent's configuration, a dictionary:

=========================  =====================================================
``agent_sandbox_url``      where the server is; without it a tool says so
``agent_sandbox_id``       the sandbox that the tools use. The first tool for
                           files makes one and puts it here if there is none
``agent_sandbox_api_key``  the key; default: ``AGENTBOX_API_KEY``
=========================  =====================================================

Without ``agent_sandbox_id`` :func:`run_command` makes a sandbox for the command and
removes it. :func:`remove_workspace` removes that of the configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import shlex
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx

logger = logging.getLogger(__name__)

Config = MutableMapping[str, Any]

#: Seconds that each call may take.
TIMEOUT = 300.0

_WORKSPACE = "/workspace"


class AgentSandboxClient:
    """AgentSandbox's client: makes sandboxes, runs commands in them, removes them.

    ``base_url`` is the server's address without ``/api/v1``. ``api_key`` is
    ``AGENTBOX_API_KEY`` unless it is given.
    """

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        key = os.environ.get("AGENTBOX_API_KEY", "") if api_key is None else api_key
        self._http = httpx.AsyncClient(
            base_url=base_url.rstrip("/") + "/api/v1",
            headers={"Authorization": "Bearer " + key} if key else {},
            timeout=TIMEOUT,
        )

    async def create_sandbox(self, network_enabled: bool = False) -> str | None:
        """Make a sandbox. The answer is its id, None after an error, which is logged."""
        try:
            made = await self._send("POST", "/sandboxes", json={"network_enabled": network_enabled})
        except httpx.HTTPError as e:
            logger.error("could not make a sandbox: %s", e)
            return None
        return str(made.json()["id"])

    async def execute_command(self, container_id: str, command: str) -> dict[str, Any] | None:
        """Run a command. The answer has its exit_code and output; None after an error, which is logged."""
        try:
            answer = await self._send("POST", _path(container_id, "execute"), json={"command": command})
        except httpx.HTTPError as e:
            logger.error("could not run a command in sandbox %s: %s", container_id, e)
            return None
        result: dict[str, Any] = answer.json()
        return result

    async def remove_sandbox(self, container_id: str) -> None:
        """Remove a sandbox; an error is logged."""
        try:
            await self._send("DELETE", _path(container_id))
        except httpx.HTTPError as e:
            logger.error("could not remove sandbox %s: %s", container_id, e)

    async def upload_file(self, container_id: str, path: str, content: bytes) -> None:
        """Write a file of the workspace; directories that are missing are made. Errors are httpx's."""
        directory, name = posixpath.split(path)
        if name in ("", ".", ".."):
            raise ValueError(f"{path!r} names no file")
        await self._send("POST", _path(container_id, "files/upload"), params={"path": directory}, files={"file": (name, content)})

    async def download_file(self, container_id: str, path: str) -> bytes:
        """Read a file of the workspace. Errors are httpx's; one that is not there is a 404."""
        return (await self._send("GET", _path(container_id, "files/download"), params={"path": path})).content

    async def list_files(self, container_id: str, path: str) -> list[dict[str, Any]]:
        """Describe the files of a directory, in the order of their names. Errors are httpx's."""
        items: list[dict[str, Any]] = []
        query = {"path": path, "limit": "1000"}
        while True:
            page = (await self._send("GET", _path(container_id, "files/list"), params=query)).json()
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            query["cursor"] = page["next_cursor"]

    async def stat_file(self, container_id: str, path: str) -> dict[str, Any]:
        """Describe a file, or what a link leads to. Errors are httpx's."""
        info: dict[str, Any] = (await self._send("GET", _path(container_id, "files/stat"), params={"path": path, "follow": "true"})).json()
        return info

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, method: str, path: str, **what: Any) -> httpx.Response:
        answer = await self._http.request(method, path, **what)
        answer.raise_for_status()
        return answer


def run_command(command: str, config: Config | None = None) -> str:
    """Run a shell command in a sandbox. The answer has its exit code, standard output and standard error."""

    async def work(client: AgentSandboxClient, config: Config) -> str:
        kept = config.get("agent_sandbox_id")
        sandbox = kept or await client.create_sandbox()
        if not sandbox:
            return "Error: Failed to create sandbox environment."
        try:
            result = await client.execute_command(sandbox, command)
        finally:
            if not kept:
                await client.remove_sandbox(sandbox)
        if result is None:
            return "Error: Failed to execute command in sandbox."
        return f"Exit Code: {result['exit_code']}\n--- OUTPUT ---\n{result['output']}"

    return _tool(config, work, "running the sandboxed command")


def read_file(path: str, config: Config | None = None) -> str:
    """Read a text file of the workspace."""

    async def work(client: AgentSandboxClient, sandbox: str) -> str:
        try:
            return (await client.download_file(sandbox, path)).decode()
        except httpx.HTTPStatusError as e:
            if _problem(e).get("detail") != "File not found in sandbox":
                raise
            return f"Error: File not found at '{path}'."

    return _file_tool(path, config, work, "reading the file")


def write_file(path: str, content: str, config: Config | None = None) -> str:
    """Write a text file of the workspace, anew if it is there; directories that are missing are made."""

    async def work(client: AgentSandboxClient, sandbox: str) -> str:
        try:
            await client.upload_file(sandbox, path, content.encode())
        except httpx.HTTPStatusError as e:
            if _problem(e).get("allowed") != "a path in the workspace":
                raise
            return _outside(path)
        return f"Successfully wrote {len(content)} characters to '{path}'."

    return _file_tool(path, config, work, "writing the file")


def list_directory(path: str = ".", config: Config | None = None) -> str:
    """List the directories and files of a directory of the workspace."""

    async def work(client: AgentSandboxClient, sandbox: str) -> str:
        where = posixpath.join(_WORKSPACE, path)
        found = await client.execute_command(sandbox, f"cd -P -- {shlex.quote(where)} && pwd -P")
        if found is None:
            return "Error: Failed to execute command in sandbox."
        if found["exit_code"] != 0:
            return f"Error: Directory not found at '{path}'."
        resolved = str(found["output"]).removesuffix("\n")
        if not _contained(resolved):
            return _outside(path)
        directories, files = [], []
        for item in await client.list_files(sandbox, resolved):
            kind = item["type"] if item["type"] != "symlink" else await _behind(client, sandbox, item["path"])
            if kind == "dir":
                directories.append(f"- {item['name']}/")
            elif kind == "file":
                files.append(f"- {item['name']}")
        none = ["  (none)"]
        return "\n".join([f"Contents of '{path}':", "Directories:", *(directories or none), "", "Files:", *(files or none)])

    return _file_tool(path, config, work, "listing the directory")


def remove_workspace(config: Config) -> None:
    """Remove the sandbox of a configuration, if it has one."""
    sandbox = config.pop("agent_sandbox_id", None)
    if sandbox:

        async def work(client: AgentSandboxClient, config: Config) -> str:
            await client.remove_sandbox(sandbox)
            return ""

        _tool(config, work, "removing the sandbox")


async def _behind(client: AgentSandboxClient, sandbox: str, link: str) -> str:
    """The type of what a link leads to; empty: nothing."""
    try:
        return str((await client.stat_file(sandbox, link))["type"])
    except httpx.HTTPStatusError:
        return ""


def _path(container_id: str, what: str = "") -> str:
    return f"/sandboxes/{quote(container_id, safe='')}" + (f"/{what}" if what else "")


def _contained(path: str) -> bool:
    """Whether a path of the workspace, as it is written, stays in it. The server looks at links."""
    full = posixpath.normpath(posixpath.join(_WORKSPACE, path))
    return full == _WORKSPACE or full.startswith(_WORKSPACE + "/")


def _outside(path: str) -> str:
    return f"Error: Path '{path}' is outside the allowed workspace."


def _problem(e: httpx.HTTPStatusError) -> dict[str, Any]:
    """What the server says is wrong: detail, and what would be allowed."""
    try:
        said = e.response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _tool(config: Config | None, work: Callable[[AgentSandboxClient, Config], Awaitable[str]], doing: str) -> str:
    """Do the work of a tool with a client of its own. What goes wrong is a text, too, for the agent to read."""
    config = {} if config is None else config
    url = config.get("agent_sandbox_url")
    if not url:
        return "Error: agent_sandbox_url not found in tool configuration."

    async def run() -> str:
        client = AgentSandboxClient(url, config.get("agent_sandbox_api_key"))
        try:
            return await work(client, config)
        finally:
            await client.close()

    try:
        return _wait(run())
    except Exception as e:  # an agent's tool raises nothing
        reason = isinstance(e, httpx.HTTPStatusError) and _problem(e).get("detail") or e
        return f"Error: An unexpected error occurred while {doing}: {reason}"


def _file_tool(path: str, config: Config | None, work: Callable[[AgentSandboxClient, str], Awaitable[str]], doing: str) -> str:
    """Do the work of a tool for files in the sandbox of the configuration."""

    async def in_sandbox(client: AgentSandboxClient, config: Config) -> str:
        if not _contained(path):
            return _outside(path)
        sandbox = config.get("agent_sandbox_id") or await client.create_sandbox()
        if not sandbox:
            return "Error: Failed to create sandbox environment."
        config["agent_sandbox_id"] = sandbox
        return await work(client, sandbox)

    return _tool(config, in_sandbox, doing)


def _wait(work: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine to its end, in a thread of its own since the caller may be in a loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
