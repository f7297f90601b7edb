# Made from _async/http.py by tools/unasync.py: change that one.
"""Sends requests, again where that is safe."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeVar

import httpx

from agentbox import _blocking, errors
from agentbox._decode import decode
from agentbox._events import Decoder, ServerEvent, stream_error
from agentbox._wire import (
    CONNECT,
    MOST_ANSWER,
    MOST_PROBLEM,
    PREFIX,
    SILENCE,
    Request,
    Settings,
    Tries,
    error_of,
    get,
    keepalive,
    loads,
    page_of,
    transport_error,
)

T = TypeVar("T")


class HTTP:
    """The connections of a client to its server, and to the routes below one prefix."""

    def __init__(self, settings: Settings, prefix: str = PREFIX) -> None:
        self.settings = settings
        transport = settings.transport or httpx.HTTPTransport(
            verify=settings.tls or False,
            uds=settings.socket,
            proxy=settings.proxy,
            # A stream holds a connection for as long as it goes on: no maximum of its own.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            socket_options=None if settings.socket else keepalive(),
        )
        self._client = httpx.Client(
            base_url=settings.base + prefix, transport=transport, headers=settings.headers, trust_env=False
        )

        self._dropped: _blocking.Dropped = deque()

    def close(self) -> None:
        """Closes the connections."""
        self._let_go()
        self._client.close()

    def _let_go(self) -> None:
        """Closes answers whose reader is gone."""
        while self._dropped:
            response, _ = self._dropped.popleft()
            response.close()

    def call(self, request: Request) -> Any:
        """The JSON of an answer; ``None`` if it has none."""
        response = self.open(request)
        with contextlib.closing(response):
            body = self._read(response, MOST_ANSWER)
        if len(body) > MOST_ANSWER:
            raise errors.ServerError(f"the server's answer has more than {MOST_ANSWER} bytes", status=response.status_code)
        if not body:
            return None
        try:
            return loads(body)
        except ValueError as e:
            raise errors.ServerError(f"the server's answer is no JSON: {e}", status=response.status_code) from e

    def record(self, kind: type[T], request: Request) -> T:
        """The record that an answer has."""
        return decode(kind, self.call(request))

    def records(self, kind: type[T], path: str, params: Mapping[str, Any]) -> Iterator[T]:
        """All records of a list, page after page."""
        while True:
            items, cursor = page_of(self.call(get(path, **params)), params.get("cursor"))
            for item in items:
                yield decode(kind, item)
            if not cursor:
                return
            params = {**params, "cursor": cursor}

    def download(self, request: Request, report: Any = None) -> Iterator[bytes]:
        """The bytes of an answer, in pieces."""
        response = self.open(request)
        length = response.headers.get("content-length")
        total = int(length) if length and "content-encoding" not in response.headers else None
        done = 0
        if report:
            report(0, total)
        for piece in _blocking.Body(response, self._dropped):
            done += len(piece)
            yield piece
            if report:
                report(done, total)

    def events(self, request: Request) -> Iterator[ServerEvent]:
        """The events of an answer, until it ends. An event ``error`` is raised."""
        response = self.open(_eventful(request))
        for event in self.read_events(response):
            if event.name == "error":
                raise stream_error(event)
            yield event

    def open(self, request: Request) -> httpx.Response:
        """An answer that is no error, whose body is still to be read and closed."""
        self._let_go()
        tries = Tries(self.settings.retries)
        while True:
            try:
                return self._once(request)
            except errors.AgentboxError as e:
                wait = tries.delay(request, e)
                if wait is None:
                    raise
            _blocking.sleep(wait)

    def read_events(self, response: httpx.Response) -> Generator[ServerEvent, None, None]:
        """The events of an answer, until it ends or breaks."""
        decoder = Decoder()
        for piece in _blocking.Body(response, self._dropped):
            for event in decoder.feed(piece):
                yield event

    def _read(self, response: httpx.Response, most: int) -> bytes:
        """A body as far as it was read when there was more than ``most``."""
        parts: list[bytes] = []
        size = 0
        for piece in _blocking.Body(response, self._dropped):
            parts.append(piece)
            size += len(piece)
            if size > most:
                break
        return b"".join(parts)

    def open_events(self, request: Request) -> httpx.Response:
        """An answer that is a stream of events."""
        return self.open(_eventful(request))

    def _once(self, request: Request) -> httpx.Response:
        patience = self.settings.timeout if request.patience is ... else request.patience
        headers = dict(request.headers)
        content = request.body() if request.body else None
        if request.json is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(request.json).encode()
        try:
            response = self._client.send(
                self._client.build_request(
                    request.method,
                    request.path,
                    params=request.query(),
                    headers=headers,
                    content=content,
                    timeout=httpx.Timeout(self.settings.timeout, connect=min(self.settings.timeout, CONNECT), read=patience),
                ),
                stream=True,
            )
        except httpx.TransportError as e:
            raise transport_error(e, self.settings.socket or self.settings.base) from e
        if response.is_success:
            return response
        with contextlib.closing(response):
            body = self._read(response, MOST_PROBLEM)
        raise error_of(response.status_code, response.headers, body)

    def socket(self, path: str, params: dict[str, Any]) -> _blocking.Socket:
        """Opens a WebSocket."""
        query = get(path, **params).query()
        return _blocking.Socket.open(self.settings, f"{PREFIX}{path}" + (f"?{query}" if query else ""))


def _eventful(request: Request) -> Request:
    headers = {"Accept": "text/event-stream", **request.headers}
    return Request(
        request.method, request.path, request.params, headers, request.json, patience=SILENCE, repeatable=request.repeatable
    )
