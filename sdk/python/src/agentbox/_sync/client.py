# Made from _async/client.py by tools/unasync.py: change that one.
"""The client of a server."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from agentbox._sync.box import Box
from agentbox._sync.http import HTTP
from agentbox._sync.manage import Images, Keys, Secrets, Volumes
from agentbox._wire import (
    PAGE,
    Duration,
    NetworkWish,
    Size,
    get,
    given,
    key_of,
    mounts_of,
    network_of,
    path_of,
    ports_of,
    post,
    settings,
)
from agentbox.models import AuditRecord, Mount, NetworkState, OnIdle, OwnedNetworkRequest, PublishedPort, Sandbox, Version


class Client:
    """An agentbox server.

    ``url``
        Where it is: ``http://…``, ``https://…`` or ``unix:///path/of/its/agentbox.sock``.
        Default: the variable ``AGENTBOX_URL``, else ``http://127.0.0.1:8700``.
    ``api_key``
        Default: the variable ``AGENTBOX_API_KEY``, else none.
    ``timeout``
        Seconds that the server may be silent when it has something to answer. Calls that
        wait for something (a command, a new sandbox, an installation, a transfer) go on
        until that ends, or its own time is over.
    ``retries``
        How often a request is sent again at most. That is done only where nothing can be
        done twice: questions, requests with an ``Idempotency-Key`` (the client makes
        them), and those that no server got.
    ``reconnect``
        Seconds within which a stream that broke tries to go on.
    ``ssl_context``
        Default: the usual authorities, and that of the file which ``AGENTBOX_CACERT`` names.
    ``transport``
        An httpx transport in place of the network, for tests.

    It may be used by several threads at once.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        reconnect: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
        transport: Any = None,
    ) -> None:
        self._http = HTTP(settings(url, api_key, timeout, retries, reconnect, ssl_context, transport))
        #: Files that outlive sandboxes.
        self.volumes = Volumes(self._http)
        #: Images that sandboxes are made of.
        self.images = Images(self._http)
        #: Secrets that sandboxes use and never see.
        self.secrets = Secrets(self._http)
        #: API keys, for admins.
        self.keys = Keys(self._http)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def create(
        self,
        *,
        image: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        workdir: str | None = None,
        memory: Size | None = None,
        cpus: float | None = None,
        disk: Size | None = None,
        shm: Size | None = None,
        pids: int | None = None,
        idle_timeout: Duration | None = None,
        lifetime: Duration | None = None,
        on_idle: OnIdle | None = None,
        network: NetworkWish | None = None,
        network_enabled: bool | None = None,
        ports: Sequence[int | PublishedPort] | None = None,
        volumes: Sequence[str | Mount] | None = None,
        secrets: Sequence[str] | None = None,
        tenant_id: str | None = None,
        process_api: bool | None = None,
        keep: bool = False,
        idempotency_key: str | None = None,
    ) -> Box:
        """Makes a sandbox and waits until commands can run in it. What is left out is the server's default.

        Sizes are bytes or texts such as ``"512m"``, durations seconds.

        ``network``
            Hosts that it may reach, such as ``["python", "api.example.com"]``; the mode
            ``"none"`` or ``"full"``; or a mapping with ``mode``, ``allow``, ``intercept``
            and ``resolver``. An empty list is no network, as is the default.
        ``network_enabled``
            True: the network that the server has for those who do not say which.
        ``ports``
            Ports of the sandbox to offer on the server's loopback interface; ``info.ports``
            tells where.
        ``volumes``
            ``"name:/path"``, ``"name:/path:ro"`` or :class:`~agentbox.Mount`.
        ``secrets``
            Names of secrets that its requests may have put in.
        ``process_api``
            Whether programs in it find the process API on 127.0.0.1:2024.
        ``keep``
            Whether it outlives its ``with`` block.
        """
        body = given(
            image=image,
            name=name,
            labels=labels,
            env=env,
            user=user,
            workdir=workdir,
            memory=memory,
            cpus=cpus,
            disk=disk,
            shm=shm,
            pids=pids,
            idle_timeout=idle_timeout,
            lifetime=lifetime,
            on_idle=on_idle,
            network=network_of(network),
            network_enabled=network_enabled,
            ports=ports_of(ports),
            volumes=mounts_of(volumes),
            secrets=secrets,
            tenant_id=tenant_id,
            process_api=process_api,
        )
        request = post("/sandboxes", body, key=key_of(idempotency_key), patience=None)
        return Box(self._http, self._http.record(Sandbox, request), keep=keep)

    def get(self, id: str) -> Box:
        """A sandbox by its id, short id, label or name. It outlives its ``with`` block."""
        return Box(self._http, self._http.record(Sandbox, get(path_of("sandboxes", id))), keep=True)

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        page_size: int = 100,
    ) -> Iterator[Box]:
        """Your sandboxes, oldest first: those with all of ``labels``, in one of the states, of that name.

        The server is asked for ``page_size`` of them at a time, when they are looked at.
        """
        params = {
            "label": [f"{k}={v}" for k, v in (labels or {}).items()],
            "status": status,
            "name": name,
            "limit": page_size,
        }
        for info in self._http.records(Sandbox, "/sandboxes", params):
            yield Box(self._http, info, keep=True)

    def version(self) -> Version:
        """Which version the server is."""
        return self._http.record(Version, get("/version"))

    def audit(
        self,
        *,
        sandbox: str | None = None,
        action: str | None = None,
        since: str | None = None,
        order: str | None = None,
        all: bool = False,
    ) -> Iterator[AuditRecord]:
        """Who did what, by default the newest first. With ``all`` that of all owners, for admins."""
        params = {**PAGE, "sandbox": sandbox, "action": action, "since": since, "order": order, "all": all}
        for record in self._http.records(AuditRecord, "/audit", params):
            yield record

    def network_requests(self) -> Iterator[OwnedNetworkRequest]:
        """What sandboxes of all owners were denied and nobody decided on. Needs an admin's key."""
        for request in self._http.records(OwnedNetworkRequest, "/network/requests", PAGE):
            yield request

    def decide(self, sandbox: str, request: str, decision: str) -> NetworkState:
        """Decides on such a request: ``allow`` puts the host on the sandbox's list, ``deny`` forgets it. Needs an admin's key."""
        return self._http.record(
            NetworkState, post(path_of("sandboxes", sandbox, "network", "requests", request), {"decision": decision})
        )
