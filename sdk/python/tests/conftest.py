"""What tests share. Those that need a server use the one that AGENTBOX_URL names, with an admin's key."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator

import pytest

import agentbox


@pytest.fixture(scope="session")
def server() -> str:
    """The URL of the server."""
    url = os.environ.get("AGENTBOX_URL")
    if not url:
        pytest.skip("AGENTBOX_URL names no server")
    return url


@pytest.fixture(scope="session")
def client(server: str) -> Iterator[agentbox.Client]:
    with agentbox.Client() as c:
        yield c


@pytest.fixture(scope="module")
def box(client: agentbox.Client) -> Iterator[agentbox.Box]:
    """A sandbox that the tests of a module share."""
    with client.create() as b:
        yield b


@pytest.fixture
def name() -> str:
    """A name that nobody has."""
    return "t-" + uuid.uuid4().hex[:10]


class Relay:
    """Leads to the server until it is cut."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._away = False
        self.dialled = 0
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.dialled += 1
                if self._away:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._open += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, away: bool = False) -> None:
        """Breaks all connections; with ``away`` new ones break, too."""
        with self._lock:
            self._away = away
            for s in self._open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self._open.clear()

    def close(self) -> None:
        self.cut(away=True)
        self._listener.close()


@pytest.fixture
def relay(server: str) -> Iterator[Relay]:
    r = Relay(server)
    yield r
    r.close()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the blocking client would have waited between tries; it does not wait."""
    waits: list[float] = []
    monkeypatch.setattr("agentbox._blocking.sleep", waits.append)
    return waits


