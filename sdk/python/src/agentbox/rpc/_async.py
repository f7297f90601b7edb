from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from agentbox import _signals, errors
from agentbox.rpc import _session
from agentbox.rpc._channel import DEFAULT_URL, address, error_of
from sandbox.v1 import sandbox_pb2 as pb
from sandbox.v1.sandbox_pb2_grpc import SandboxServiceStub

if TYPE_CHECKING:
    from sandbox.v1.sandbox_pb2_grpc import SandboxServiceAsyncStub

Answer = TypeVar("Answer")


class AsyncSandbox(_session.Session):
    """:class:`agentbox.Sandbox` for asyncio: the same members, to be awaited.

    It belongs to the event loop in which its first call is made::

        async with AsyncSandbox() as sandbox:
            await sandbox.create()
            async for message in sandbox.exec_stream("make"):
                print(message.type, message.data)
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._address = address(base_url, api_key, ca_file)
        self._channel: grpc.aio.Channel | None = None

    @property
    def _stub(self) -> SandboxServiceAsyncStub:
        if self._channel is None:  # it is made in the loop that uses it
            to = self._address
            if to.secure:
                self._channel = grpc.aio.secure_channel(to.target, to.credentials(), options=to.options)
            else:
                self._channel = grpc.aio.insecure_channel(to.target, options=to.options)
        return cast("SandboxServiceAsyncStub", SandboxServiceStub(self._channel))

    async def _call(self, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        try:
            return await method(request, metadata=self._address.metadata)
        except grpc.RpcError as e:
            raise error_of(e) from e

    async def create(
        self,
        session_id: str | None = None,
        tenant_id: str | None = None,
        allowed_hosts: Sequence[str] | None = None,
    ) -> pb.SessionInfo:
        """Makes a sandbox, or goes on with the one of ``session_id``; see :meth:`agentbox.Sandbox.create`."""
        answer = await self._call(self._stub.CreateSession, _session.create_request(session_id, tenant_id, allowed_hosts))
        self._info = answer.session
        return answer.session

    async def destroy(self) -> bool:
        """Ends the current session; False: there is none, or it was gone."""
        if self._info is None:
            return False
        answer = await self._call(self._stub.DestroySession, pb.DestroySessionRequest(session_id=self._info.session_id))
        self._info = None
        return answer.success

    async def exec(self, command: str, *, timeout: int = _session.DEFAULT_TIMEOUT, workdir: str = _session.DEFAULT_WORKDIR) -> pb.ExecResponse:
        """Runs a command by ``/bin/sh -c`` and waits for its end, at most ``timeout`` seconds."""
        return await self._call(self._stub.Exec, self._exec_request(command, timeout, workdir))

    def exec_stream(self, command: str, workdir: str = _session.DEFAULT_WORKDIR) -> AsyncIterator[pb.ExecStreamResponse]:
        """Runs a command and gives its output while it runs, then ``exit`` or ``error``.

        Closing the iterator early ends the command.
        """
        return self._stream(self._stream_request(command, workdir))

    async def _stream(self, request: pb.ExecStreamRequest) -> AsyncIterator[pb.ExecStreamResponse]:
        call = self._stub.ExecStream(request, metadata=self._address.metadata)
        try:
            async for message in call:
                yield message
        except grpc.RpcError as e:
            raise error_of(e) from e
        finally:
            call.cancel()

    async def write_file(self, path: str, content: str, mode: _session.Mode = "w") -> None:
        """Writes a text; relative paths are below /workspace. Directories that are missing are made."""
        _session.written(await self._call(self._stub.WriteFile, self._write_request(path, content, mode)))

    async def read_file(self, path: str) -> str:
        """Reads a text; relative paths are below /workspace."""
        return _session.content(await self._call(self._stub.ReadFile, self._read_request(path)))

    async def pip_install(self, packages: Sequence[str]) -> pb.ExecResponse:
        """Installs Python packages, by name and version, for the sandbox's user."""
        return await self._call(self._stub.PipInstall, self._pip_request(packages))

    async def run_python(self, code: str, timeout: int = _session.DEFAULT_TIMEOUT) -> pb.ExecResponse:
        """Runs a Python program from a file, which is removed in every case."""
        await self.write_file(_session.SCRIPT, code)
        try:
            return await self.exec(_session.RUN_SCRIPT, timeout=timeout)
        finally:
            with contextlib.suppress(errors.AgentboxError):
                await self.exec(_session.REMOVE_SCRIPT)

    async def close(self) -> None:
        """Closes the connection; the session, if any, goes on."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> AsyncSandbox:
        _signals.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        try:
            await self.destroy()
        except errors.AgentboxError:
            if e is None:
                raise  # else the block's own error says more
        finally:
            _signals.end()
            await self.close()
