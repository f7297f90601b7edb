"""Terminals and ports on a real server."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.request

import pytest

import agentbox

from conftest import Relay

ECHO = """
import socket, threading
s = socket.create_server(("127.0.0.1", 7000))
def serve(c):
    while data := c.recv(65536): c.sendall(data)
    c.sendall(b"END"); c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
"""


def until_listening(box: agentbox.Box, port: int) -> agentbox.models.Port:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for p in box.ports():
            if p.port == port:
                return p
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def echo(box: agentbox.Box) -> agentbox.Box:
    box.files.write("echo.py", ECHO)
    box.background("python3 echo.py")
    assert until_listening(box, 7000).process == "python3"
    return box


def test_connect(echo: agentbox.Box) -> None:
    data = bytes(range(256)) * 4096
    with echo.connect(7000) as c:
        c.write(data)
        c.close_write()
        assert b"".join(c) == data + b"END"
    with pytest.raises(agentbox.Conflict, match="nothing listens"):
        echo.connect(7001)
    with echo.connect(7000) as c, pytest.raises(TimeoutError):
        c.read(timeout=0.2)


def test_forward(echo: agentbox.Box) -> None:
    with echo.forward(7000) as f:
        ends = [socket.create_connection((f.host, f.port), timeout=60) for _ in range(3)]
        for i, end in enumerate(ends):
            end.sendall(b"%d" % i)
            assert end.recv(10) == b"%d" % i
        ends[0].shutdown(socket.SHUT_WR)
        assert ends[0].recv(10) == b"END" and ends[0].recv(10) == b""
    for end in ends:
        assert end.recv(10) == b""
        end.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((f.host, f.port))
    with echo.forward(7001) as f, socket.create_connection((f.host, f.port), timeout=60) as end:
        assert end.recv(10) == b""


def test_http(box: agentbox.Box) -> None:
    box.files.write("site/index.html", "hello from inside")
    box.background("python3 -m http.server 8000 --directory site")
    until_listening(box, 8000)
    with box.forward(8000) as f:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{f.port}/") as r:
                assert r.read() == b"hello from inside"


def test_published(client: agentbox.Client) -> None:
    with client.create(memory="160m", ports=[8080, agentbox.PublishedPort(9000)]) as box:
        assert [p.guest for p in box.info.ports] == [8080, 9000] and all(p.host for p in box.info.ports)
        box.files.write("index.html", "published")
        box.background("python3 -m http.server 8080")
        until_listening(box, 8080)
        c = http.client.HTTPConnection("127.0.0.1", box.info.ports[0].host, timeout=60)
        c.request("GET", "/")
        assert c.getresponse().read() == b"published"
        c.close()


def read_until(t: agentbox.Terminal, text: bytes) -> bytes:
    got = b""
    while text not in got:
        piece = t.read(timeout=60)
        assert piece, got
        got += piece
    return got


def test_terminal(box: agentbox.Box) -> None:
    with box.terminal(cols=100, rows=30) as t:
        assert t.exec_id
        t.write("stty size; echo é-$((20+1))\n")
        read_until(t, "é-21".encode())
        t.resize(132, 43)
        t.write("stty size\n")
        read_until(t, b"43 132")
        t.write("sleep 600\n")
        t.write("\x03")
        t.write("exit 5\n")
        for _ in t:
            pass
        assert t.result and t.result.exit_code == 5 and t.read() == b""
    with box.terminal("sleep 600") as t:
        t.signal("KILL")
        assert b"".join(t) == b"" and t.result and t.result.signal == 9
    with pytest.raises(TimeoutError), box.terminal("sleep 600") as t:
        t.read(timeout=0.2)


def test_terminal_taken_up_again(relay: Relay, box: agentbox.Box) -> None:
    with agentbox.Client(relay.url, retries=0) as c:
        far = c.get(box.id)
        t = far.terminal("echo A1; read x; echo got-$x")
        got = read_until(t, b"A1\r\n")
        relay.cut()
        with pytest.raises(agentbox.ConnectionFailed):
            t.read(timeout=60)
        assert t.result is None
        with far.terminal(exec_id=t.exec_id, offset=t.offset) as again:
            again.write("y\n")
            rest = b"".join(again)
    assert got == b"A1\r\n" and b"A1" not in rest and b"got-y" in rest and again.result and again.result.exit_code == 0
    with pytest.raises(agentbox.NotFound):
        box.terminal(exec_id="none")
