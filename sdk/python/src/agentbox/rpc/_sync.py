from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc

from agentbox import _signals, errors
from agentbox.rpc import _session
from agentbox.rpc._channel import DEFAULT_URL, address, error_of
from sandbox.v1 import sandbox_pb2 as pb
from sandbox.v1.sandbox_pb2_grpc import SandboxServiceStub

Answer = TypeVar("Answer")


class Sandbox(_session.Session):
    """A sandbox by gRPC: one session, its commands and its texts.

    ``base_url`` is ``http://HOST:PORT``, or ``https://`` for TLS; ``ca_file``, or
    ``AGENTBOX_CACERT``, has the certificates that are trusted then, instead of the usual
    ones. ``api_key`` is ``AGENTBOX_API_KEY`` unless it is given; a server with
    ``--no-auth`` needs none.

    Used as a context manager it destroys its session at the end, also after an error,
    Ctrl-C and SIGTERM, and closes its connection::

        with Sandbox() as sandbox:
            sandbox.create()
            print(sandbox.exec("python3 --version").stdout)

    A command that fails is a result. Errors are those of :mod:`agentbox.errors`:
    without a session every call that needs one raises ``Conflict``.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        to = address(base_url, api_key, ca_file)
        self._metadata = to.metadata
        if to.secure:
            self._channel = grpc.secure_channel(to.target, to.credentials(), options=to.options)
        else:
            self._channel = grpc.insecure_channel(to.target, options=to.options)
        self._stub = SandboxServiceStub(self._channel)

    def _call(self, method: Callable[..., Answer], request: Any) -> Answer:
        try:
            return method(request, metadata=self._metadata)
        except grpc.RpcError as e:
            raise error_of(e) from e

    def create(
        self,
        session_id: str | None = None,
        tenant_id: str | None = None,
        allowed_hosts: Sequence[str] | None = None,
    ) -> pb.SessionInfo:
        """Makes a sandbox, or goes on with the one of ``session_id``, and makes it the current session.

        ``allowed_hosts`` is all that it may reach; none or empty: the server's default
        hosts. A session that was current before goes on and is not destroyed.
        """
        answer = self._call(self._stub.CreateSession, _session.create_request(session_id, tenant_id, allowed_hosts))
        self._info = answer.session
        return answer.session

    def destroy(self) -> bool:
        """Ends the current session; False: there is none, or it was gone."""
        if self._info is None:
            return False
        answer = self._call(self._stub.DestroySession, pb.DestroySessionRequest(session_id=self._info.session_id))
        self._info = None
        return answer.success

    def exec(self, command: str, *, timeout: int = _session.DEFAULT_TIMEOUT, workdir: str = _session.DEFAULT_WORKDIR) -> pb.ExecResponse:
        """Runs a command by ``/bin/sh -c`` and waits for its end, at most ``timeout`` seconds."""
        return self._call(self._stub.Exec, self._exec_request(command, timeout, workdir))

    def exec_stream(self, command: str, workdir: str = _session.DEFAULT_WORKDIR) -> Iterator[pb.ExecStreamResponse]:
        """Runs a command and gives its output while it runs, then ``exit`` or ``error``.

        Closing the iterator early ends the command.
        """
        return self._stream(self._stream_request(command, workdir))

    def _stream(self, request: pb.ExecStreamRequest) -> Iterator[pb.ExecStreamResponse]:
        call = self._stub.ExecStream(request, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as e:
            raise error_of(e) from e
        finally:
            call.cancel()

    def write_file(self, path: str, content: str, mode: _session.Mode = "w") -> None:
        """Writes a text; relative paths are below /workspace. Directories that are missing are made."""
        _session.written(self._call(self._stub.WriteFile, self._write_request(path, content, mode)))

    def read_file(self, path: str) -> str:
        """Reads a text; relative paths are below /workspace."""
        return _session.content(self._call(self._stub.ReadFile, self._read_request(path)))

    def pip_install(self, packages: Sequence[str]) -> pb.ExecResponse:
        """Installs Python packages, by name and version, for the sandbox's user."""
        return self._call(self._stub.PipInstall, self._pip_request(packages))

    def run_python(self, code: str, timeout: int = _session.DEFAULT_TIMEOUT) -> pb.ExecResponse:
        """Runs a Python program from a file, which is removed in every case."""
        self.write_file(_session.SCRIPT, code)
        try:
            return self.exec(_session.RUN_SCRIPT, timeout=timeout)
        finally:
            with contextlib.suppress(errors.AgentboxError):
                self.exec(_session.REMOVE_SCRIPT)

    def close(self) -> None:
        """Closes the connection; the session, if any, goes on."""
        self._channel.close()

    def __enter__(self) -> Sandbox:
        _signals.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.destroy()
        except errors.AgentboxError:
            if e is None:
                raise  # else the block's own error says more
        finally:
            _signals.end()
            self.close()
