"""What the server tells, as plain immutable records.

Sizes are in bytes, durations in seconds, times in UTC. A server that is newer than
this package may send more fields; they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

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
OnDisconnect = Literal["kill", "kill_now", "keep"]


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


@dataclass(frozen=True)
class Truncated:
    """Which streams of a command had more than was kept."""

    stdout: bool
    stderr: bool


@dataclass(frozen=True)
class ExecEnd:
    """How a command ended."""

    exec_id: str
    #: What it exited with; 128+n after signal n, -1 after a time-out, 137 out of memory, 126 and
    #: 127 for a program that can't be run or is not there. ``None``: it runs.
    exit_code: int | None
    #: The signal that ended it.
    signal: int | None
    timed_out: bool
    oom_killed: bool
    truncated: Truncated
    #: Why it ended, in words, if ``exit_code`` does not say it all.
    reason: str
    #: Seconds.
    duration: float
    #: Seconds, of the command and all that it started, as far as known.
    cpu_time: float
    #: Of its biggest process; 0: not known.
    peak_memory: int

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class ExecResult(ExecEnd):
    """How a command ended, with its output.

    ``stdout``, ``stderr`` and ``output`` are text, with U+FFFD in place of what is no
    UTF-8; ``stdout_bytes``, ``stderr_bytes`` and ``output_bytes`` are exact.
    """

    stdout_bytes: bytes = field(default=b"", metadata={"name": "stdout"})
    stderr_bytes: bytes = field(default=b"", metadata={"name": "stderr"})
    #: Both, in the order of arrival.
    output_bytes: bytes = field(default=b"", metadata={"name": "output"})

    @property
    def stdout(self) -> str:
        """Its output as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Its errors as text."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def output(self) -> str:
        """Both as text, in the order of arrival."""
        return self.output_bytes.decode(errors="replace")


@dataclass(frozen=True)
class Kept:
    """The part of an output stream that is still there, in offsets."""

    first: int
    end: int


@dataclass(frozen=True)
class Exec:
    """A command that runs, or ended not long ago."""

    exec_id: str
    state: Literal["queued", "running", "ended"]
    #: Of its first process, in the sandbox; 0 while it is queued.
    pid: int
    #: The program and its arguments.
    command: list[str]
    user: str
    tty: bool
    started_at: datetime
    #: Which output is still there.
    stdout: Kept
    stderr: Kept
    #: ``None``: it has not ended. Lists leave its output out.
    result: ExecResult | None


@dataclass(frozen=True)
class ShellSession:
    """A shell that stays: its directory, variables and functions last."""

    name: str
    #: The command that its shell is.
    exec_id: str
    started_at: datetime


@dataclass(frozen=True)
class File:
    """A file, directory or link of a sandbox."""

    path: str
    name: str
    type: Literal["file", "dir", "symlink", "fifo", "socket", "device"]
    #: Where a symlink leads.
    target: str
    #: Permissions, octal, with setuid, setgid and sticky.
    mode: str
    size: int
    uid: int
    gid: int
    #: Empty: the sandbox has no name for it.
    user: str
    group: str
    mtime: datetime
    atime: datetime
    ctime: datetime
    nlink: int
    #: The path exactly, if it is no UTF-8.
    path_base64: bytes | None = None


@dataclass(frozen=True)
class Found:
    """Files that were found by their names."""

    items: list[File]
    #: Why there may be more: ``count``, ``size`` or ``time``; empty: that is all.
    truncated: str
    #: Directories that the user may not read.
    skipped: int


@dataclass(frozen=True)
class Line:
    """A line with a match."""

    path: str
    #: From 1.
    line: int
    #: Of the line in the file.
    offset: int
    #: Of the first match in the line.
    start: int
    end: int
    text: str
    #: Where ``text`` begins in the line.
    text_start: int
    #: ``text`` is not the whole line.
    cut: bool
    before: list[str]
    after: list[str]


@dataclass(frozen=True)
class FoundLines:
    """Lines that were found."""

    items: list[Line]
    #: Why there may be more: ``count``, ``size`` or ``time``; empty: that is all.
    truncated: str
    #: How many files were searched, and left out because they are binary.
    files: int
    binary: int
    #: Of which only the first 64 KiB were searched.
    long_lines: int
    #: Files and directories that were left out otherwise.
    skipped: int


@dataclass(frozen=True)
class LeftOutFile:
    """A file that was not copied."""

    path: str
    #: ``fifo``, ``socket``, ``device``, ``denied``, ``size`` or ``count``.
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """What was not copied."""

    total: int
    #: The first hundred.
    first: list[LeftOutFile]


@dataclass(frozen=True)
class Copied:
    """What was copied."""

    #: Files, directories and links.
    entries: int
    skipped: LeftOut


@dataclass(frozen=True)
class Change:
    """A change in a directory that is watched."""

    #: ``create``, ``write``, ``remove``, ``rename``, ``chmod``, or ``overflow``: something was
    #: missed, read the tree again.
    type: str
    path: str
    #: Below the directory; empty: the directory itself.
    name: str
    #: What is there now; ``None``: nothing, or not known.
    file: File | None


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
class Volume:
    """Files that outlive sandboxes."""

    name: str
    size: int
    #: How the server keeps it: ``image``, ``quota`` or ``directory``.
    kind: str
    #: ``disk``, if the server can't hold it to its size.
    not_enforced: list[str]
    created_at: datetime
    #: Ids of the sandboxes that have it, stopped ones included.
    used_by: list[str]
    #: What it takes on the server's disk; ``None`` in lists.
    used: int | None = None


@dataclass(frozen=True)
class Image:
    """An image that sandboxes can be made of."""

    name: str
    digest: str
    size: int
    #: ``recipe``, ``tar``, ``archive`` or ``registry``.
    source: str
    #: Who commands run as; empty: 1000.
    user: str
    #: Where commands run; empty: /.
    workdir: str
    created_at: datetime


@dataclass(frozen=True)
class Secret:
    """A secret that sandboxes use and never see."""

    name: str
    #: Hosts whose requests it is put into.
    hosts: list[str]
    #: Header that it stands in.
    header: str
    #: What the header becomes, with ``{}`` where the value goes.
    format: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Key:
    """An API key, without the key itself."""

    id: str
    #: Your word for it.
    name: str
    #: Whose things the key reaches.
    owner: str
    admin: bool
    created_at: datetime
    #: Since when it lets nobody in; ``None``: it is good.
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey(Key):
    """An API key that was just made."""

    #: The key itself, shown this one time.
    key: str = field(repr=False)


@dataclass(frozen=True)
class AuditRecord:
    """Who did what."""

    time: datetime
    #: Such as ``create``, ``exec``, ``file_read``, ``key_revoke``.
    action: str
    owner: str
    key_id: str
    #: Id of the sandbox it was about.
    sandbox: str
    #: ``ok``, or the code of the error.
    result: str
    request_id: str
    details: dict[str, Any]


@dataclass(frozen=True)
class Version:
    """Versions of the server."""

    #: Of the product.
    version: str
    #: Of the API.
    api: str


@dataclass(frozen=True)
class Output:
    """A piece of a command's output.

    ``data`` is exact. Pieces end between characters, so ``text`` has U+FFFD only where
    the output itself is no UTF-8.
    """

    type: Literal["stdout", "stderr"]
    #: Where the piece begins in its stream, in bytes.
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        """The piece as text."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Exit:
    """The end of a command: the last event of its stream."""

    result: ExecEnd
    type: Literal["exit"] = "exit"


StreamEvent = Output | Exit
