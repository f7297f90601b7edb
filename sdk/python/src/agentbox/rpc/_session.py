"""What Sandbox and AsyncSandbox have in common: the state, the requests, and what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentbox import errors
from sandbox.v1 import sandbox_pb2 as pb

#: How a file is written: anew, or at its end.
Mode = Literal["w", "a"]

#: Time of a command in seconds, and where it runs.
DEFAULT_TIMEOUT = 30
DEFAULT_WORKDIR = "/workspace"

#: Where run_python puts its program, and what runs and removes it.
SCRIPT = "_temp_script.py"
RUN_SCRIPT = "python3 " + SCRIPT
REMOVE_SCRIPT = "rm -f " + SCRIPT

#: Hosts that pip needs.
INDEX_HOSTS = ("pypi.org", "files.pythonhosted.org")

# Texts of the server about files, and the errors for them. Others are the system's.
_FILE_ERRORS: dict[str, type[errors.AgentboxError]] = {
    "File not found": errors.NotFound,
    "Session not found": errors.NotFound,
    "Sandbox is not running": errors.NotRunning,
    "Path not allowed": errors.PermissionDenied,
    "Invalid mode": errors.InvalidArgument,
    "File is not valid UTF-8 text": errors.InvalidArgument,
}


class Session:
    """The session that a Sandbox has made, if any."""

    def __init__(self) -> None:
        self._info: pb.SessionInfo | None = None

    @property
    def session_id(self) -> str | None:
        """Id of the current session; None: there is none."""
        return self._info.session_id if self._info else None

    @property
    def allowed_hosts(self) -> list[str]:
        """Hosts that the session may reach; a copy."""
        return list(self._info.allowed_hosts) if self._info else []

    @property
    def network_enabled(self) -> bool:
        """Whether the session may reach any host."""
        return bool(self.allowed_hosts)

    def _id(self) -> str:
        if self._info is None:
            raise errors.Conflict("No active session. Call create() first.")
        return self._info.session_id

    def _exec_request(self, command: str, timeout: int, workdir: str) -> pb.ExecRequest:
        return pb.ExecRequest(session_id=self._id(), command=command, timeout=timeout, workdir=workdir)

    def _stream_request(self, command: str, workdir: str) -> pb.ExecStreamRequest:
        return pb.ExecStreamRequest(session_id=self._id(), command=command, workdir=workdir)

    def _write_request(self, path: str, content: str, mode: Mode) -> pb.WriteFileRequest:
        return pb.WriteFileRequest(session_id=self._id(), path=path, content=content, mode=mode)

    def _read_request(self, path: str) -> pb.ReadFileRequest:
        return pb.ReadFileRequest(session_id=self._id(), path=path)

    def _pip_request(self, packages: Sequence[str]) -> pb.PipInstallRequest:
        request = pb.PipInstallRequest(session_id=self._id(), packages=packages)
        missing = [host for host in INDEX_HOSTS if host not in self.allowed_hosts]
        if missing:
            raise errors.PermissionDenied(f"pip install requires {', '.join(missing)} in allowed_hosts")
        return request


def create_request(session_id: str | None, tenant_id: str | None, allowed_hosts: Sequence[str] | None) -> pb.CreateSessionRequest:
    return pb.CreateSessionRequest(session_id=session_id, tenant_id=tenant_id, allowed_hosts=allowed_hosts or ())


def written(answer: pb.WriteFileResponse) -> None:
    if not answer.success:
        raise _file_error("write", answer.error)


def content(answer: pb.ReadFileResponse) -> str:
    if not answer.success:
        raise _file_error("read", answer.error)
    return answer.content


def _file_error(verb: str, text: str) -> errors.AgentboxError:
    return _FILE_ERRORS.get(text, errors.AgentboxError)(f"Failed to {verb} file: {text}")
