"""Commands and shell sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

OnDisconnect = Literal["kill", "kill_now", "keep"]


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
