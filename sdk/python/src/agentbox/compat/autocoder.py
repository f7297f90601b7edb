"""The library calls of autocoder's sandbox manager, over ``/api/sandboxes``."""

from __future__ import annotations

import logging
import re
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from agentbox import errors
from agentbox._async.box import AsyncBox
from agentbox._async.client import AsyncClient
from agentbox._async.http import AsyncHTTP
from agentbox._wire import Request, get, path_of, post
from agentbox.compat import _copy

logger = logging.getLogger(__name__)


@dataclass
class SandboxInfo:
    """A sandbox, as it was when the server was asked."""

    sandbox_id: str
    container_id: str
    project_name: str
    #: creating, running, stopped or error.
    status: str
    created_at: datetime
    workspace_path: str
    #: Ports of the server's machine by ports of the sandbox.
    ports: dict[str, int] = field(default_factory=dict)
    #: Memory and cpu, as they were asked for.
    resource_limits: dict[str, str] = field(default_factory=dict)


class SandboxManager:
    """autocoder's sandbox manager, with the sandboxes on an agentbox server.

    ``base_url`` is ``AGENTBOX_URL`` or http://127.0.0.1:8700 unless it is given,
    ``api_key`` is ``AGENTBOX_API_KEY``. Commands may take as long as the server lets
    them. What the manager's calls don't say by their results is an error of
    :mod:`agentbox.errors`, such as a server that can't be reached.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        self._native = AsyncClient(base_url, api_key)
        self._http = AsyncHTTP(self._native._http.settings, prefix="/api/sandboxes")

    async def create_sandbox(
        self,
        project_name: str,
        memory_limit: str = "2g",
        cpu_limit: str = "2.0",
        ports: Mapping[str, int] | None = None,
    ) -> SandboxInfo:
        """Makes a sandbox. ``ports`` has ports of the server's machine by ports of the sandbox.

        What the server could not or would not make is a ``RuntimeError``.
        """
        asked = {
            "project_name": project_name,
            "memory_limit": memory_limit,
            "cpu_limit": cpu_limit,
            "ports": {str(guest): host for guest, host in ports.items()} if ports else None,
        }
        try:
            return await self._http.record(SandboxInfo, post("", asked, patience=None))
        except (errors.InvalidArgument, errors.Conflict, errors.RateLimited, errors.ServerError) as e:
            raise RuntimeError(f"Failed to create sandbox: {e.detail}") from e

    async def get_sandbox(self, sandbox_id: str) -> SandboxInfo | None:
        """Describes a sandbox; None: it is not there."""
        try:
            return await self._http.record(SandboxInfo, get(path_of(sandbox_id)))
        except errors.NotFound:
            return None

    async def list_sandboxes(self, project_name: str | None = None) -> list[SandboxInfo]:
        """Describes all sandboxes, or those of one project."""
        return await self._http.record(list[SandboxInfo], get("", project_name=project_name))

    async def start_sandbox(self, sandbox_id: str) -> bool:
        """Starts a stopped sandbox. True: it runs."""
        return await self._done(post(path_of(sandbox_id, "start"), patience=None))

    async def stop_sandbox(self, sandbox_id: str) -> bool:
        """Stops a sandbox; its workspace is kept. True: it is stopped."""
        return await self._done(post(path_of(sandbox_id, "stop"), patience=None))

    async def destroy_sandbox(self, sandbox_id: str, remove_volume: bool = True) -> bool:
        """Destroys a sandbox, and its workspace unless ``remove_volume`` is False. True: it is gone."""
        return await self._done(Request("DELETE", path_of(sandbox_id), {"remove_volume": str(remove_volume).lower()}, patience=None))

    async def execute_command(
        self, sandbox_id: str, command: Sequence[str], workdir: str = "/workspace"
    ) -> tuple[int, str, str]:
        """Runs a program with its arguments, without a shell: exit code, standard output, standard error.

        An unknown sandbox is a ``ValueError``, one that does not run a ``RuntimeError``.
        """
        request = post(path_of(sandbox_id, "execute"), {"command": list(command), "workdir": workdir}, patience=None)
        try:
            result = await self._http.call(request)
        except errors.NotFound as e:
            raise _unknown(sandbox_id) from e
        except errors.NotRunning as e:
            raise RuntimeError(f"Sandbox {sandbox_id} is not running") from e
        return result["exit_code"], result["stdout"], result["stderr"]

    async def copy_to_sandbox(self, sandbox_id: str, local_path: _copy.LocalPath, sandbox_path: str) -> bool:
        """Copies a file or directory into a sandbox that runs, to where ``docker cp`` puts it.

        False: it was not copied, or not all of it; the log has why.
        """
        return await self._copied(sandbox_id, lambda box: _copy.to_sandbox(box, local_path, sandbox_path))

    async def copy_from_sandbox(self, sandbox_id: str, sandbox_path: str, local_path: _copy.LocalPath) -> bool:
        """Copies a file or directory out of a sandbox that runs, to where ``docker cp`` puts it.

        False: it was not copied, or not all of it; the log has why.
        """
        return await self._copied(sandbox_id, lambda box: _copy.from_sandbox(box, sandbox_path, local_path))

    async def cleanup_stopped_sandboxes(self, older_than_hours: int = 24) -> int:
        """Destroys sandboxes that have been stopped for so long, with their workspaces, and tells how many."""
        answer = await self._http.call(post(path_of("any", "cleanup"), patience=None, hours=older_than_hours))
        found = re.search(r"\d+", answer["message"])
        return int(found[0]) if found else 0

    async def close(self) -> None:
        """Closes the connections; sandboxes go on."""
        await self._http.close()
        await self._native.close()

    async def __aenter__(self) -> SandboxManager:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    async def _done(self, request: Request) -> bool:
        try:
            await self._http.call(request)
        except (errors.NotFound, errors.Conflict, errors.ServerError) as e:
            logger.error("%s %s: %s", request.method, request.path, e)
            return False
        return True

    async def _copied(self, sandbox_id: str, copy: Callable[[AsyncBox], Awaitable[None]]) -> bool:
        try:
            box = await self._native.get(sandbox_id)
        except errors.NotFound as e:
            raise _unknown(sandbox_id) from e
        try:
            await copy(box)
        except (OSError, tarfile.TarError, _copy.CopyError, errors.NotFound, errors.Conflict, errors.InvalidArgument) as e:
            logger.error("could not copy: %s", e)
            return False
        return True


def _unknown(sandbox_id: str) -> ValueError:
    return ValueError(f"Sandbox {sandbox_id} not found")
