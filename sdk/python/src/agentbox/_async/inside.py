"""What belongs to one sandbox: its network, packages and shell sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from agentbox._async.http import AsyncHTTP
from agentbox._wire import PAGE, NetworkWish, Request, get, key_of, network_of, path_of, post
from agentbox.models import ConnectionRecord, ExecResult, NetworkState, ShellSession


class AsyncNetwork:
    """What a sandbox may reach. Changes hold at once for new connections."""

    def __init__(self, http: AsyncHTTP, box: str) -> None:
        self._http = http
        self._path = path_of("sandboxes", box, "network")

    async def get(self) -> NetworkState:
        """What it may reach, and was denied."""
        return await self._http.record(NetworkState, get(self._path))

    async def set(self, network: NetworkWish, *, cut: bool = False) -> NetworkState:
        """Replaces it: by a list of hosts, a mode, or all of it as ``network`` of :meth:`AsyncClient.create` takes it.

        With ``cut`` connections that are not allowed any more end.
        """
        body = {**(network_of(network) or {}), "cut": cut}
        return await self._http.record(NetworkState, Request("PUT", self._path, json=body))

    async def change(self, *, add: Sequence[str] = (), remove: Sequence[str] = (), cut: bool = False) -> NetworkState:
        """Puts hosts on its list, and takes off others, as they stand on it."""
        body = {"add": list(add), "remove": list(remove), "cut": cut}
        return await self._http.record(NetworkState, Request("PATCH", self._path, json=body))

    async def log(self, *, since: str | None = None, order: str | None = None) -> AsyncIterator[ConnectionRecord]:
        """What it reached and was denied; ``order`` is ``newest`` or ``oldest`` first."""
        params = {**PAGE, "since": since, "order": order}
        async for record in self._http.records(ConnectionRecord, self._path + "/log", params):
            yield record


class AsyncPackages:
    """Installs packages, by names with versions only. A failed installation is a result.

    The sandbox must be allowed to reach the package index, see the presets ``python`` and ``node``.
    """

    def __init__(self, http: AsyncHTTP, box: str) -> None:
        self._http = http
        self._box = box

    async def _install(self, tool: str, packages: Sequence[str]) -> ExecResult:
        body = {"packages": [packages] if isinstance(packages, str) else list(packages)}
        request = post(path_of("sandboxes", self._box, "packages", tool), body, patience=None, encoding="base64")
        return await self._http.record(ExecResult, request)

    async def pip(self, packages: str | Sequence[str]) -> ExecResult:
        """Python packages."""
        return await self._install("pip", packages)

    async def npm(self, packages: str | Sequence[str]) -> ExecResult:
        """Node packages."""
        return await self._install("npm", packages)

    async def apt(self, packages: str | Sequence[str]) -> ExecResult:
        """Debian packages, as root."""
        return await self._install("apt", packages)


class AsyncSessions:
    """Shells that stay: commands that run in one share its directory, variables and functions.

    Give the name of one as ``session`` to :meth:`AsyncBox.exec` or :meth:`AsyncBox.stream`.
    """

    def __init__(self, http: AsyncHTTP, box: str) -> None:
        self._http = http
        self._box = box

    async def create(self, name: str, *, idempotency_key: str | None = None) -> ShellSession:
        """Begins one."""
        request = post(path_of("sandboxes", self._box, "sessions"), {"name": name}, key=key_of(idempotency_key))
        return await self._http.record(ShellSession, request)

    async def list(self) -> AsyncIterator[ShellSession]:
        """Those that there are, oldest first."""
        async for one in self._http.records(ShellSession, path_of("sandboxes", self._box, "sessions"), PAGE):
            yield one

    async def remove(self, name: str) -> None:
        """Ends one, with all that runs in it."""
        await self._http.call(Request("DELETE", path_of("sandboxes", self._box, "sessions", name)))
