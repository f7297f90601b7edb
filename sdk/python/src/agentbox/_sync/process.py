# Made from _async/process.py by tools/unasync.py: change that one.
"""Commands that are followed, or run in the background."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from types import TracebackType

import httpx

from agentbox import _blocking, errors
from agentbox._sync.http import HTTP
from agentbox._events import Follow
from agentbox._local import Progress, Source
from agentbox._wire import SILENCE, Duration, Request, get, path_of, post, seconds
from agentbox.models import Exec, ExecEnd, ExecResult, StreamEvent


class Stream:
    """The output of a command, as it comes.

    Iterating gives :class:`~agentbox.Output` pieces and at last one :class:`~agentbox.Exit`.
    A connection that breaks is taken up again where it was, so nothing is lost or doubled;
    if that does not succeed within the client's ``reconnect``, the error is raised. There
    is no result then: nobody knows how the command ended.

    Closing it before the end, also by leaving its ``with`` block, has the command killed
    after 5 s, unless it was started with ``detach`` or another ``on_disconnect``.
    """

    def __init__(self, http: HTTP, box: str, response: httpx.Response, follow: Follow, resumable: bool) -> None:
        self._http = http
        self._box = box
        self._follow = follow
        self._resumable = resumable
        self._response = response
        self._source = http.read_events(response)
        self._ready: list[StreamEvent] = []
        self._events = self._run()

    @property
    def exec_id(self) -> str:
        """The command."""
        return self._follow.exec_id

    @property
    def result(self) -> ExecEnd | None:
        """How the command ended; ``None`` until then."""
        return self._follow.result

    def process(self) -> Process:
        """The command, to write to its input or to signal it."""
        return Process(self._http, self._box, self.exec_id)

    def __iter__(self) -> Iterator[StreamEvent]:
        return self._events

    def wait(self) -> ExecEnd:
        """Passes over the rest of the output and tells how the command ended."""
        for _ in self._events:
            pass
        if self.result is None:
            raise errors.ConnectionFailed("the stream was closed before the command's end")
        return self.result

    def close(self) -> None:
        """Stops following."""
        self._events.close()
        self._source.close()
        self._response.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def begin(self) -> Stream:
        """Waits for the first event, which says which command it is."""
        try:
            for event in self._source:
                self._ready = self._follow.take(event)
                if self.exec_id or self._ready:
                    return self
        except BaseException:
            self.close()
            raise
        raise errors.ConnectionFailed("the stream ended before it began")

    def _run(self) -> Generator[StreamEvent, None, None]:
        reached: str | None = None
        end, opened = 0.0, time.monotonic()
        while True:
            try:
                for event in self._ready:
                    yield event
                self._ready = []
                for server_event in self._source:
                    for event in self._follow.take(server_event):
                        yield event
                    if self.result is not None:
                        break
                if self.result is not None:
                    self._response.close()
                    return
                broken: errors.Unavailable = errors.ConnectionFailed("the stream ended before the command")
            except errors.Unavailable as e:
                broken = e
            if not self._resumable:
                raise broken
            self._response.close()
            patience, now = self._http.settings.reconnect, time.monotonic()
            if self._follow.last_id != reached or now - opened > patience:  # it did go on meanwhile, or had nothing to say
                reached, end = self._follow.last_id, now + patience
            else:
                _blocking.sleep(0.2)
            self._response = self._resume(broken, end)
            opened = time.monotonic()
            self._source = self._http.read_events(self._response)

    def _resume(self, broken: errors.Unavailable, end: float) -> httpx.Response:
        """Follows the command again, from where the stream broke, unless that does not succeed until ``end``."""
        while True:
            if time.monotonic() >= end:
                raise broken
            try:
                return open_output(self._http, self._box, self.exec_id, self._follow.last_id or "0-0")
            except errors.Unavailable as e:
                broken = e
            _blocking.sleep(0.2)


def open_output(http: HTTP, box: str, exec_id: str, last_id: str) -> httpx.Response:
    """The output of a command from an event on, as a stream of events."""
    request = Request(
        "GET",
        path_of("sandboxes", box, "execs", exec_id, "output"),
        {"encoding": "base64"},
        {"Last-Event-ID": last_id},
        repeatable=True,
    )
    return http.open_events(request)


class Process:
    """A command in a sandbox, by its ``exec_id``. It needs nobody to follow it."""

    def __init__(self, http: HTTP, box: str, exec_id: str) -> None:
        self._http = http
        self._box = box
        #: Names the command.
        self.exec_id = exec_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.exec_id!r})"

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self._box, "execs", self.exec_id, *parts)

    def info(self) -> Exec:
        """Its state, and its result with the output that is kept."""
        return self._http.record(Exec, get(self._path(), encoding="base64"))

    def wait(self, timeout: Duration | None = None) -> ExecResult:
        """Waits for its end. After ``timeout`` seconds it is a TimeoutError, and the command runs on."""
        limit = seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            # A part of the wait at a time: connections that are silent for long get lost on their way.
            part = SILENCE / 2 if left is None else min(left, SILENCE / 2)
            request = post(self._path("wait"), timeout=f"{part:.3f}", encoding="base64", patience=2 * SILENCE)
            state = self._http.record(Exec, _asks(request))
            if state.result is not None:
                return state.result
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the command runs on after {limit} s")

    def attach(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Stream:
        """Follows its output from offsets on, until its end."""
        follow = Follow()
        follow.exec_id, follow.last_id = self.exec_id, f"{stdout_offset}-{stderr_offset}"
        response = open_output(self._http, self._box, self.exec_id, follow.last_id)
        return Stream(self._http, self._box, response, follow, resumable=True)

    def output(self, *, stream: str = "both", offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """The bytes of its output that are kept: ``stdout``, ``stderr`` or ``both``.

        An offset, which one of the two streams can have, that is not there any more is
        :class:`~agentbox.OutOfRange`. With ``follow`` they go on until the command's end.
        """
        request = get(self._path("output"), stream=stream, offset=offset or None, follow=follow)
        if follow:
            request = Request("GET", request.path, request.params, patience=None, repeatable=True)
        for piece in self._http.download(request):
            yield piece

    def write(self, data: Source, *, progress: Progress | None = None) -> None:
        """Writes to its input, which must have been left open (``open_stdin``)."""
        self._write(data, False, progress)

    def close_stdin(self) -> None:
        """Ends its input."""
        self._write(b"", True, None)

    def _write(self, data: Source, eof: bool, progress: Progress | None) -> None:
        # It takes as long as the command takes to read it.
        self._http.call(
            Request(
                "POST",
                self._path("stdin"),
                {"eof": eof},
                {"Content-Type": "application/octet-stream"},
                body=lambda: _blocking.chunks(data, progress, None),
                patience=None,
            )
        )

    def signal(self, signal: int | str, *, tree: bool = False) -> None:
        """Sends a signal, by number or name; with ``tree`` to all that the command started, too."""
        self._http.call(post(self._path("signal"), {"signal": signal, "tree": tree}))

    def kill(self) -> None:
        """Kills it with all that it started. One that has ended already is no error."""
        with contextlib.suppress(errors.Conflict):
            self.signal("KILL", tree=True)

    def resize(self, cols: int, rows: int) -> None:
        """Sets the size of its terminal."""
        self._http.call(post(self._path("resize"), {"cols": cols, "rows": rows}))


def _asks(request: Request) -> Request:
    """A POST that changes nothing."""
    return Request(
        request.method, request.path, request.params, request.headers, request.json, patience=request.patience, repeatable=True
    )
