# Made from _async/inside.py by tools/unasync.py: change that one.
"""What belongs to one sandbox: its network, packages and shell sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentbox._sync.http import HTTP
from agentbox._wire import PAGE, NetworkWish, Request, get, key_of, network_of, path_of, post
from agentbox.models import ConnectionRecord, ExecResult, NetworkState, ShellSession


class Network:
    """What a sandbox may reach. Changes hold at once for new connections."""

    def __init__(self, http: HTTP, box: str) -> None:
        self._http = http
        self._path = path_of("sandboxes", box, "network")

    def get(self) -> NetworkState:
        """What it may reach, and was denied."""
        return self._http.record(NetworkState, get(self._path))

    def set(self, network: NetworkWish, *, cut: bool = False) -> NetworkState:
        """Replaces it: by a list of hosts, a mode, or all of it as ``network`` of :meth:`Client.create` takes it.

        With ``cut`` connections that are not allowed any more end.
        """
        body = {**(network_of(network) or {}), "cut": cut}
        return self._http.record(NetworkState, Request("PUT", self._path, json=body))

    def change(self, *, add: Sequence[str] = (), remove: Sequence[str] = (), cut: bool = False) -> NetworkState:
        """Puts hosts on its list, and takes off others, as they stand on it."""
        body = {"add": list(add), "remove": list(remove), "cut": cut}
        return self._http.record(NetworkState, Request("PATCH", self._path, json=body))

    def log(self, *, since: str | None = None, order: str | None = None) -> Iterator[ConnectionRecord]:
        """What it reached and was denied; ``order`` is ``newest`` or ``oldest`` first."""
        params = {**PAGE, "since": since, "order": order}
        for record in self._http.records(ConnectionRecord, self._path + "/log", params):
            yield record


class Packages:
    """Installs packages, by names with versions only. A failed installation is a result.

    The sandbox must be allowed to reach the package index, see the presets ``python`` and ``node``.
    """

    def __init__(self, http: HTTP, box: str) -> None:
        self._http = http
        self._box = box

    def _install(self, tool: str, packages: Sequence[str]) -> ExecResult:
        body = {"packages": [packages] if isinstance(packages, str) else list(packages)}
        request = post(path_of("sandboxes", self._box, "packages", tool), body, patience=None, encoding="base64")
        return self._http.record(ExecResult, request)

    def pip(self, packages: str | Sequence[str]) -> ExecResult:
        """Python packages."""
        return self._install("pip", packages)

    def npm(self, packages: str | Sequence[str]) -> ExecResult:
        """Node packages."""
        return self._install("npm", packages)

    def apt(self, packages: str | Sequence[str]) -> ExecResult:
        """Debian packages, as root."""
        return self._install("apt", packages)


class Sessions:
    """Shells that stay: commands that run in one share its directory, variables and functions.

    Give the name of one as ``session`` to :meth:`Box.exec` or :meth:`Box.stream`.
    """

    def __init__(self, http: HTTP, box: str) -> None:
        self._http = http
        self._box = box

    def create(self, name: str, *, idempotency_key: str | None = None) -> ShellSession:
        """Begins one."""
        request = post(path_of("sandboxes", self._box, "sessions"), {"name": name}, key=key_of(idempotency_key))
        return self._http.record(ShellSession, request)

    def list(self) -> Iterator[ShellSession]:
        """Those that there are, oldest first."""
        for one in self._http.records(ShellSession, path_of("sandboxes", self._box, "sessions"), PAGE):
            yield one

    def remove(self, name: str) -> None:
        """Ends one, with all that runs in it."""
        self._http.call(Request("DELETE", path_of("sandboxes", self._box, "sessions", name)))
