"""What sandboxes are, use and may reach."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SandboxStatus = Literal[
    "creating",
    "running",
    "paused",
    "suspended",
    "stopping",
    "stopped",
    "starting",
    "error",
    "destroying",
]
NetworkMode = Literal["none", "allowlist", "full"]
OnIdle = Literal["destroy", "stop"]


@dataclass(frozen=True)
class Limits:
    """Limits of a sandbox."""

    memory: int
    #: Cores.
    cpus: float
    #: Bytes of written files, /tmp included.
    disk: int
    #: Bytes of /dev/shm.
    shm: int
    #: Processes and threads.
    pids: int


@dataclass(frozen=True)
class Network:
    """What a sandbox may reach."""

    mode: NetworkMode
    #: What it may reach, with the mode ``allowlist``.
    allow: list[str]
    #: Hosts whose TLS the proxy ends itself.
    intercept: list[str]
    #: Programs that take no proxy reach allowed names, too.
    resolver: bool


@dataclass(frozen=True)
class NetworkRequest:
    """A host that a sandbox was denied and nobody decided on since."""

    id: str
    host: str
    port: int
    #: How often it was asked for.
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class OwnedNetworkRequest(NetworkRequest):
    """The same with whose sandbox it is."""

    owner: str
    #: Id of the sandbox.
    sandbox: str


@dataclass(frozen=True)
class NetworkState(Network):
    """What a sandbox may reach, and was denied."""

    #: The oldest first; at most 64, while the sandbox runs.
    requests: list[NetworkRequest]


@dataclass(frozen=True)
class ConnectionRecord:
    """A connection that a sandbox made, or was denied."""

    time: datetime
    #: How the program asked: ``connect``, ``http``, ``socks``, ``transparent`` or empty.
    kind: str
    #: Name that was asked for; empty if it was an address.
    host: str
    port: int
    #: Address that was dialled, or refused.
    address: str
    #: ``allowed``, ``denied`` or ``failed``.
    verdict: str
    #: Why it was denied or failed, for programs and in words.
    code: str
    reason: str
    #: What allowed it.
    rule: str
    intercepted: bool
    #: Of a request that was seen.
    method: str
    path: str
    status: int
    sent: int
    received: int
    duration: float
    #: It had not ended when this was written.
    open: bool
    #: Not 0: so many more connections have no entry.
    omitted: int


@dataclass(frozen=True)
class Port:
    """A TCP port on which something in the sandbox listens."""

    port: int
    #: The address that it listens on.
    address: str
    uid: int
    #: 0: not known.
    pid: int
    #: The name that it gave itself; empty: not known.
    process: str


@dataclass(frozen=True)
class PublishedPort:
    """A port of a sandbox that the server's machine offers on its loopback interface."""

    #: Port in the sandbox.
    guest: int
    #: Port of the server's machine; 0 in a request: any that is free.
    host: int = 0


@dataclass(frozen=True)
class Mount:
    """A volume that a sandbox has."""

    #: Name of the volume.
    name: str
    #: Where it is in the sandbox.
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A sandbox as the server describes it; :attr:`Box.info` is one."""

    #: 64 hex digits. The short id, the label and the name are accepted in its place everywhere.
    id: str
    #: The first 12 digits of the id.
    short_id: str
    #: An id that is fit for host names.
    label: str
    #: Your name for it.
    name: str | None
    status: SandboxStatus
    #: Why it is in this state, if it is not as it should be.
    error_reason: str | None
    image: str
    #: Who commands run as.
    user: str
    #: Where commands run.
    workdir: str
    labels: dict[str, str]
    limits: Limits
    #: Limits that this server can't enforce.
    not_enforced: list[str]
    network: Network
    ports: list[PublishedPort]
    volumes: list[Mount]
    #: Names of the secrets that its requests may have put in.
    secrets: list[str]
    #: What becomes of it after ``idle_timeout``.
    on_idle: OnIdle
    #: Seconds without use; ``None``: it may be idle for ever.
    idle_timeout: float | None
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    last_activity_at: datetime
    #: When it is destroyed; ``None``: never.
    expires_at: datetime | None
    #: Whose storage it has; ``None``: nobody's.
    tenant_id: str | None
    #: Whether programs in it find the process API on 127.0.0.1:2024.
    process_api: bool


@dataclass(frozen=True)
class Isolation:
    """What isolates a sandbox."""

    backend: str
    version: str
    #: How it works on this host, in words.
    mode: str
    #: Who root of the sandbox is on the host.
    host_user: int
    host_capabilities: list[str]
    #: Whether a filter bounds the system calls that reach the host.
    seccomp: bool
    network: Network
    limits: Limits
    #: Limits that hold whatever the sandbox does.
    enforced: list[str]
    not_enforced: list[str]


@dataclass(frozen=True)
class Stats:
    """What a sandbox uses."""

    time: datetime
    #: Seconds of CPU time since its start.
    cpu: float
    #: 0: this server can't tell.
    memory: int
    #: Most at one time; 0: this server can't tell.
    peak_memory: int
    #: What its files take on the host's disk.
    disk: int
    #: Tasks on the host; the isolation itself has some.
    processes: int
    network_in: int
    network_out: int
    #: How often the memory limit was reached.
    oom_kills: int


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox."""

    #: Grows with every event of the server.
    seq: int
    time: datetime
    #: ``state``, ``failure``, ``update``, ``oom`` or ``adopted``.
    type: str
    #: The sandbox's state after that.
    status: str
    reason: str
    detail: str
