"""One sandbox."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType

from agentbox import _signals, errors
from agentbox._async.files import AsyncFiles
from agentbox._async.http import AsyncHTTP
from agentbox._async.inside import AsyncNetwork, AsyncPackages, AsyncSessions
from agentbox._async.process import AsyncProcess, AsyncStream
from agentbox._async.terminal import AsyncConnection, AsyncForward, AsyncTerminal
from agentbox._decode import decode
from agentbox._events import Follow
from agentbox._wire import PAGE, Duration, Request, Size, get, given, key_of, path_of, post, seconds
from agentbox.models import Event, Exec, ExecResult, Isolation, OnDisconnect, Port, Sandbox, Stats


class AsyncBox:
    """A sandbox of the server.

    One that :meth:`AsyncClient.create` made is destroyed at the end of its ``with`` block,
    unless ``keep`` is true; so it is when the program is told to end by SIGTERM within the
    block. After ``kill -9`` it goes when it was idle for its ``idle_timeout``.
    """

    def __init__(self, http: AsyncHTTP, info: Sandbox, *, keep: bool) -> None:
        self._http = http
        #: What the server said of it last, see :meth:`refresh`.
        self.info = info
        #: Whether it outlives its ``with`` block.
        self.keep = keep
        #: Its files.
        self.files = AsyncFiles(http, info.id)
        #: What it may reach.
        self.network = AsyncNetwork(http, info.id)
        #: Installs packages.
        self.packages = AsyncPackages(http, info.id)
        #: Shells that stay.
        self.sessions = AsyncSessions(http, info.id)

    @property
    def id(self) -> str:
        """64 hex digits."""
        return self.info.id

    @property
    def short_id(self) -> str:
        """The first 12 digits of the id."""
        return self.info.short_id

    @property
    def label(self) -> str:
        """An id that is fit for host names."""
        return self.info.label

    @property
    def name(self) -> str | None:
        """Your name for it."""
        return self.info.name

    @property
    def status(self) -> str:
        """Its state, as the server said last."""
        return self.info.status

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name or self.short_id!r}, {self.status})"

    async def __aenter__(self) -> AsyncBox:
        if not self.keep:
            _signals.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self.keep:
            return
        try:
            await self.destroy()
        except errors.AgentboxError:
            if e is None:
                raise  # else the block's own error says more
        finally:
            _signals.end()

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self.id, *parts)

    async def _changed(self, request: Request) -> Sandbox:
        self.info = await self._http.record(Sandbox, request)
        return self.info

    # Its life.

    async def refresh(self) -> Sandbox:
        """Asks the server how it is now."""
        return await self._changed(get(self._path()))

    async def update(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        memory: Size | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        shm: Size | None = None,
        idle_timeout: Duration | None = None,
        lifetime: Duration | None = None,
    ) -> Sandbox:
        """Changes it while it runs.

        A label of ``None`` is removed, others stay. ``lifetime`` counts from now on. Programs
        see new memory and cores after its next start.
        """
        body = given(
            labels=labels, memory=memory, cpus=cpus, pids=pids, shm=shm, idle_timeout=idle_timeout, lifetime=lifetime
        )
        return await self._changed(Request("PATCH", self._path(), json=body))

    async def stop(self) -> Sandbox:
        """Ends its processes and keeps its files."""
        return await self._changed(post(self._path("stop"), patience=None))

    async def start(self) -> Sandbox:
        """Runs it again after :meth:`stop`."""
        return await self._changed(post(self._path("start"), patience=None))

    async def destroy(self, *, remove_storage: bool = False) -> None:
        """Destroys it. One that is gone already is no error.

        Its volumes stay; so does its tenant's storage, unless ``remove_storage`` is set.
        """
        try:
            await self._http.call(Request("DELETE", self._path(), {"remove_storage": remove_storage}, patience=None))
        except errors.NotFound:
            pass

    # Commands.

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
        timeout: Duration | None = None,
        max_output: Size | None = None,
        session: str | None = None,
        on_disconnect: OnDisconnect | None = None,
        idempotency_key: str | None = None,
    ) -> ExecResult:
        """Runs a command and waits for its end; one that fails is a result, not an error.

        ``command`` is a command line for the shell, or a program with its arguments. After
        ``timeout`` seconds (default: an hour) it is killed, and the result says so.
        ``max_output`` is how much of each stream is kept, by default 10 MB. With
        ``session`` it runs in that shell, see :attr:`sessions`.

        The request has an ``idempotency_key``, so it is done once even if the connection
        breaks and it is sent again. Then ``output`` may have all of stdout first; what the
        server does not have any more of it, ``truncated`` tells. An empty key is none: that
        saves the server some milliseconds, and a broken connection is a
        :class:`~agentbox.ConnectionFailed`.
        """
        body = command_of(
            command,
            workdir=workdir,
            env=env,
            user=user,
            timeout=timeout,
            max_output=max_output,
            session=session,
            on_disconnect=on_disconnect,
            stdin=stdin,
        )
        limit = seconds(timeout)
        request = post(
            self._path("execute"),
            body,
            key=key_of(idempotency_key),
            patience=None if limit is None else limit + self._http.settings.timeout,
            encoding="base64",
        )
        result = await self._http.record(ExecResult, request)
        if max_output is None and is_cut(result):
            return await self._completed(result)
        return result

    async def _completed(self, result: ExecResult) -> ExecResult:
        """The result with the output that the server keeps of the command, for an hour."""
        try:
            state = await self.process(result.exec_id).info()
        except errors.AgentboxError:
            return result
        return state.result or result

    async def stream(
        self,
        command: str | Sequence[str],
        *,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
        open_stdin: bool = False,
        timeout: Duration | None = None,
        max_output: Size | None = None,
        session: str | None = None,
        tty: bool = False,
        cols: int | None = None,
        rows: int | None = None,
        detach: bool = False,
        on_disconnect: OnDisconnect | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncStream:
        """Runs a command and gives its output as it comes; see :class:`AsyncStream`.

        With ``open_stdin`` its input stays open for ``stream.process().write(…)``. With
        ``detach`` it runs on when nobody follows it. With ``tty`` it has a terminal, and
        stderr is part of stdout.
        """
        body = command_of(
            command,
            workdir=workdir,
            env=env,
            user=user,
            timeout=timeout,
            max_output=max_output,
            session=session,
            on_disconnect=on_disconnect,
            stdin=stdin,
            open_stdin=open_stdin or None,
            tty=tty or None,
            cols=cols,
            rows=rows,
            detach=detach or None,
        )
        # A shell session goes with who follows it: there is nothing to take up again.
        key = None if session else key_of(idempotency_key)
        request = post(self._path("execute", "stream"), body, key=key, encoding="base64")
        response = await self._http.open_events(request)
        return await AsyncStream(self._http, self.id, response, Follow(), resumable=not session).begin()

    async def background(
        self,
        command: str | Sequence[str],
        *,
        workdir: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
        open_stdin: bool = False,
        timeout: Duration | None = None,
        max_output: Size | None = None,
        tty: bool = False,
        cols: int | None = None,
        rows: int | None = None,
        on_disconnect: OnDisconnect | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncProcess:
        """Starts a command that runs on by itself, without end unless it has a ``timeout``."""
        body = command_of(
            command,
            workdir=workdir,
            env=env,
            user=user,
            timeout=timeout,
            max_output=max_output,
            on_disconnect=on_disconnect,
            stdin=stdin,
            open_stdin=open_stdin or None,
            tty=tty or None,
            cols=cols,
            rows=rows,
            detach=True,
        )
        answer = await self._http.record(
            ExecResult, post(self._path("execute"), body, key=key_of(idempotency_key), patience=None, encoding="base64")
        )
        return self.process(answer.exec_id)

    def process(self, exec_id: str) -> AsyncProcess:
        """A command that was started before, by its ``exec_id``."""
        return AsyncProcess(self._http, self.id, exec_id)

    async def processes(self) -> AsyncIterator[Exec]:
        """The commands that run and those that ended in the last hour, oldest first."""
        async for one in self._http.records(Exec, self._path("execs"), PAGE):
            yield one

    async def terminal(
        self,
        command: str | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        workdir: str | None = None,
        user: str | None = None,
        detach: bool = False,
        exec_id: str | None = None,
        offset: int = 0,
    ) -> AsyncTerminal:
        """Opens a terminal with a command line in it, by default a login shell.

        With ``exec_id`` it is that of a command that has one already, from ``offset`` bytes
        of its output on.
        """
        if exec_id is None:
            params = {"command": command, "cols": cols, "rows": rows, "workdir": workdir, "user": user, "detach": detach}
        else:
            params = {"exec_id": exec_id, "offset": offset}
        return await AsyncTerminal(await self._http.socket(self._path("terminal"), params)).begin()

    # Ports.

    async def ports(self) -> list[Port]:
        """The TCP ports on which something listens."""
        answer = await self._http.call(get(self._path("ports")))
        return [decode(Port, p) for p in answer["items"]]

    async def connect(self, port: int) -> AsyncConnection:
        """Opens a connection to a port of the sandbox. If nothing listens there it is a :class:`~agentbox.Conflict`."""
        return AsyncConnection(await self._http.socket(self._path("ports", str(port), "connect"), {}))

    async def forward(self, port: int, *, local_port: int = 0, local_host: str = "127.0.0.1") -> AsyncForward:
        """Leads a local port (0: any that is free) to one of the sandbox, until it is closed."""
        return await AsyncForward.open(local_host, local_port, lambda: self.connect(port))

    # What it does.

    async def stats(self) -> Stats:
        """What it uses. Looking at it does not keep it from being idle."""
        return await self._http.record(Stats, get(self._path("stats")))

    async def follow_stats(self) -> AsyncIterator[Stats]:
        """What it uses, each second."""
        async for event in self._http.events(get(self._path("stats"), stream=True)):
            if event.name == "stats":
                yield decode(Stats, event.fields())

    async def events(self) -> AsyncIterator[Event]:
        """What happened to it, oldest first. The last thousand are kept."""
        async for event in self._http.records(Event, self._path("events"), PAGE):
            yield event

    async def follow_events(self, *, after: int | None = None) -> AsyncIterator[Event]:
        """What happened to it and happens, until it is gone; behind the event with the ``seq`` ``after``."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        request = Request("GET", self._path("events"), {"follow": True}, headers, repeatable=True)
        async for event in self._http.events(request):
            if "seq" in (fields := event.fields()):
                yield decode(Event, fields)

    async def isolation(self) -> Isolation:
        """What isolates it."""
        return await self._http.record(Isolation, get(self._path("isolation")))


#: Bytes of an answer that the server gives again.
MOST_AGAIN = 64 << 10


def is_cut(result: ExecResult) -> bool:
    """Whether output is missing because the answer was given again: by default far more of it is kept."""
    return (result.truncated.stdout or result.truncated.stderr) and len(result.stdout_bytes) + len(result.stderr_bytes) < MOST_AGAIN


def command_of(command: str | Sequence[str], *, stdin: str | bytes | None, **fields: object) -> dict[str, object]:
    """The body of a request to run something."""
    body = given(command=command, **fields)
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif stdin is not None:
        body["stdin_base64"] = base64.b64encode(stdin).decode()
    return body
