"""The library calls of autocoder's sandbox manager, over ``/api/sandboxes``."""

from __future__ import annotations

import logging
import os
import re
import tarfile
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from agentbox.compat import _copy

logger = logging.getLogger(__name__)

#: Where a server is if neither an argument nor AGENTBOX_URL says otherwise.
DEFAULT_URL = "http://127.0.0.1:8700"


@dataclass
class SandboxInfo:
    """A sandbox, as it was when the server was asked."""

    sandbox_id: str
    container_id: str
    project_name: str
    status: str  #: creating, running, stopped or error
    created_at: datetime
    workspace_path: str
    ports: dict[str, int] = field(default_factory=dict)  #: of the sandbox: of the server's machine
    resource_limits: dict[str, str] = field(default_factory=dict)  #: memory and cpu


class SandboxManager:
    """autocoder's sandbox manager, with the sandboxes on an agentbox server.

    ``base_url`` is ``AGENTBOX_URL`` or http://127.0.0.1:8700 unless it is given,
    ``api_key`` is ``AGENTBOX_API_KEY``. Commands may take as long as the server lets
    them. What the server could not do is False or a ``RuntimeError`` with its reason;
    one that can't be reached, or does not let this client in, is an
    ``httpx.HTTPError``.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        key = os.environ.get("AGENTBOX_API_KEY", "") if api_key is None else api_key
        self._http = httpx.AsyncClient(
            base_url=(base_url or os.environ.get("AGENTBOX_URL") or DEFAULT_URL).rstrip("/"),
            headers={"Authorization": "Bearer " + key} if key else {},
            timeout=httpx.Timeout(60.0, read=None),
        )

    async def create_sandbox(
        self,
        project_name: str,
        memory_limit: str = "2g",
        cpu_limit: str = "2.0",
        ports: Mapping[str, int] | None = None,
    ) -> SandboxInfo:
        """Make a sandbox. ``ports`` has ports of the server's machine by ports of the sandbox."""
        asked = {
            "project_name": project_name,
            "memory_limit": memory_limit,
            "cpu_limit": cpu_limit,
            "ports": {str(guest): host for guest, host in ports.items()} if ports else None,
        }
        answer = await self._ask("POST", "/api/sandboxes", json=asked)
        if answer.is_error:
            raise RuntimeError(f"Failed to create sandbox: {_detail(answer)}")
        return _info(answer.json())

    async def get_sandbox(self, sandbox_id: str) -> SandboxInfo | None:
        """Describe a sandbox; None: it is not there."""
        answer = await self._ask("GET", _path(sandbox_id))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        return _info(answer.json())

    async def list_sandboxes(self, project_name: str | None = None) -> list[SandboxInfo]:
        """Describe all sandboxes, or those of one project."""
        answer = await self._ask("GET", "/api/sandboxes", params={"project_name": project_name} if project_name else None)
        answer.raise_for_status()
        return [_info(one) for one in answer.json()]

    async def start_sandbox(self, sandbox_id: str) -> bool:
        """Start a stopped sandbox. True: it runs."""
        return _done(await self._ask("POST", _path(sandbox_id, "start")))

    async def stop_sandbox(self, sandbox_id: str) -> bool:
        """Stop a sandbox; its workspace is kept. True: it is stopped."""
        return _done(await self._ask("POST", _path(sandbox_id, "stop")))

    async def destroy_sandbox(self, sandbox_id: str, remove_volume: bool = True) -> bool:
        """Destroy a sandbox, and its workspace unless ``remove_volume`` is False. True: it is gone."""
        return _done(await self._ask("DELETE", _path(sandbox_id), params={"remove_volume": str(remove_volume).lower()}))

    async def execute_command(self, sandbox_id: str, command: Sequence[str], workdir: str = "/workspace") -> tuple[int, str, str]:
        """Run a program with its arguments, without a shell: exit code, standard output, standard error."""
        answer = await self._ask("POST", _path(sandbox_id, "execute"), json={"command": list(command), "workdir": workdir})
        _known(sandbox_id, answer)
        if answer.is_error:
            raise RuntimeError(_detail(answer))
        result = answer.json()
        return result["exit_code"], result["stdout"], result["stderr"]

    async def cleanup_stopped_sandboxes(self, older_than_hours: int = 24) -> int:
        """Destroy sandboxes that have been stopped for so long, with their workspaces. The answer is how many."""
        answer = await self._ask("POST", _path("any", "cleanup"), params={"hours": str(older_than_hours)})
        answer.raise_for_status()
        found = re.search(r"\d+", answer.json()["message"])
        return int(found[0]) if found else 0

    async def close(self) -> None:
        """Close the connections; sandboxes go on."""
        await self._http.aclose()

    async def __aenter__(self) -> SandboxManager:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _ask(self, method: str, path: str, **what: Any) -> httpx.Response:
        answer = await self._http.request(method, path, **what)
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            answer.raise_for_status()
        return answer

    async def copy_to_sandbox(self, sandbox_id: str, local_path: str | os.PathLike[str], sandbox_path: str) -> bool:
        """Copy a file or directory into a sandbox, to where ``docker cp`` puts it. False: it was not copied; the log has why."""
        return await self._copied(sandbox_id, _copy.to_sandbox(self._http, sandbox_id, local_path, sandbox_path))

    async def copy_from_sandbox(self, sandbox_id: str, sandbox_path: str, local_path: str | os.PathLike[str]) -> bool:
        """Copy a file or directory out of a sandbox, to where ``docker cp`` puts it. False: it was not copied, or not all; the log has why."""
        return await self._copied(sandbox_id, _copy.from_sandbox(self._http, sandbox_id, sandbox_path, local_path))

    async def _copied(self, sandbox_id: str, copy: Coroutine[Any, Any, None]) -> bool:
        try:
            _known(sandbox_id, await self._ask("GET", _path(sandbox_id)))
        except BaseException:
            copy.close()
            raise
        try:
            await copy
        except (OSError, tarfile.TarError, _copy.CopyError) as e:
            logger.error("could not copy: %s", e)
            return False
        return True


def _path(sandbox_id: str, what: str = "") -> str:
    return f"/api/sandboxes/{quote(sandbox_id, safe='')}" + (f"/{what}" if what else "")


def _info(answer: Mapping[str, Any]) -> SandboxInfo:
    created = datetime.fromisoformat(answer["created_at"].replace("Z", "+00:00"))  # Python 3.10 knows no Z
    return SandboxInfo(**{f.name: answer[f.name] for f in fields(SandboxInfo)} | {"created_at": created})


def _known(sandbox_id: str, answer: httpx.Response) -> None:
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise ValueError(f"Sandbox {sandbox_id} not found")


def _done(answer: httpx.Response) -> bool:
    if answer.is_error:
        logger.error("the server answers %d: %s", answer.status_code, _detail(answer))
    return answer.is_success


def _detail(answer: httpx.Response) -> str:
    """What the server says is wrong."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text
