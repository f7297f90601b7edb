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
import posixpath
import shlex
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from agentbox import errors
from agentbox._async.box import AsyncBox
from agentbox._async.client import AsyncClient
from agentbox._async.files import whole
from agentbox._wire import Request, get, path_of, post

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
        #: The same server by its own API.
        self.native = AsyncClient(base_url, api_key, timeout=TIMEOUT)
        self._http = self.native._http

    async def create_sandbox(self, network_enabled: bool = False) -> str | None:
        """Makes a sandbox and gives its id; None after an error, which is logged."""
        try:
            made = await self._http.call(post("/sandboxes", {"network_enabled": network_enabled}))
        except errors.AgentboxError as e:
            logger.error("could not make a sandbox: %s", e)
            return None
        return str(made["id"])

    async def execute_command(self, container_id: str, command: str) -> dict[str, Any] | None:
        """Runs a command and gives its exit_code and output; None after an error, which is logged."""
        try:
            result: dict[str, Any] = await self._http.call(post(path_of("sandboxes", container_id, "execute"), {"command": command}))
        except errors.AgentboxError as e:
            logger.error("could not run a command in sandbox %s: %s", container_id, e)
            return None
        return result

    async def remove_sandbox(self, container_id: str) -> None:
        """Removes a sandbox; an error is logged."""
        try:
            await self._http.call(Request("DELETE", path_of("sandboxes", container_id)))
        except errors.AgentboxError as e:
            logger.error("could not remove sandbox %s: %s", container_id, e)

    async def upload_file(self, container_id: str, path: str, content: bytes) -> None:
        """Writes a file of the workspace, and of nothing else; directories that are missing are made."""
        directory, name = posixpath.split(path)
        if name in ("", ".", ".."):
            raise errors.InvalidArgument(f"{path!r} names no file", field="path")
        form = httpx.Request("POST", "http://form", files={"file": (name, content)})
        kind = {"Content-Type": form.headers["Content-Type"]}
        where = path_of("sandboxes", container_id, "files", "upload")
        await self._http.call(Request("POST", where, {"path": directory}, kind, body=form.read))

    async def download_file(self, container_id: str, path: str) -> bytes:
        """Reads a file of the workspace, and of nothing else. It has at most 256 MiB."""
        where = path_of("sandboxes", container_id, "files", "download")
        return await whole(path, self._http.download(get(where, path=path)))

    async def close(self) -> None:
        """Closes the connections."""
        await self.native.close()


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
        except errors.NotFound as e:
            if e.detail != "File not found in sandbox":
                raise
            return f"Error: File not found at '{path}'."

    return _file_tool(path, config, work, "reading the file")


def write_file(path: str, content: str, config: Config | None = None) -> str:
    """Write a text file of the workspace, anew if it is there; directories that are missing are made."""

    async def work(client: AgentSandboxClient, sandbox: str) -> str:
        try:
            await client.upload_file(sandbox, path, content.encode())
        except errors.InvalidArgument as e:
            if e.allowed != "a path in the workspace":
                raise
            return _outside(path)
        return f"Successfully wrote {len(content)} characters to '{path}'."

    return _file_tool(path, config, work, "writing the file")


def list_directory(path: str = ".", config: Config | None = None) -> str:
    """List the directories and files of a directory of the workspace."""

    async def work(client: AgentSandboxClient, sandbox: str) -> str:
        box = await client.native.get(sandbox)
        where = shlex.quote(posixpath.join(_WORKSPACE, path))
        found = await box.exec(f"cd -P -- {where} && pwd -P")
        if found.exit_code != 0:
            return f"Error: Directory not found at '{path}'."
        resolved = found.stdout.removesuffix("\n")
        if not _contained(resolved):
            return _outside(path)
        directories, files = [], []
        async for item in box.files.list(resolved):
            kind = item.type if item.type != "symlink" else await _behind(box, item.path)
            if kind == "dir":
                directories.append(f"- {item.name}/")
            elif kind == "file":
                files.append(f"- {item.name}")
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


async def _behind(box: AsyncBox, link: str) -> str:
    """The type of what a link leads to; empty: nothing."""
    try:
        return (await box.files.stat(link, follow=True)).type
    except errors.AgentboxError:
        return ""


def _contained(path: str) -> bool:
    """Whether a path of the workspace, as it is written, stays in it. The server looks at links."""
    full = posixpath.normpath(posixpath.join(_WORKSPACE, path))
    return full == _WORKSPACE or full.startswith(_WORKSPACE + "/")


def _outside(path: str) -> str:
    return f"Error: Path '{path}' is outside the allowed workspace."


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
        return f"Error: An unexpected error occurred while {doing}: {e}"


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
