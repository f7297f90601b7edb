"""A server that is killed and started anew, under clients that wait for something."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentbox


class Server:
    """A server of the test's own, with the images that tests share."""

    def __init__(self, program: str, images: str) -> None:
        self._program = program
        self.dir = Path(tempfile.mkdtemp(prefix="ab"))  # short: paths of sockets are limited
        self.dir.chmod(0o711)
        for name in ("images", "engine", "guest"):
            (self.dir / name).symlink_to(Path(images, name))
        with socket.create_server(("127.0.0.1", 0)) as s:
            self._address = "127.0.0.1:%d" % s.getsockname()[1]
        self.url = f"http://{self._address}"
        self.start()

    def start(self, *flags: str) -> None:
        self._log = open(self.dir / "log", "ab")
        self._process = subprocess.Popen(
            [self._program, "serve", "--no-auth", "--listen", self._address, "--grpc-listen", "none", "--sandbox-image", "small", *flags],
            env={**os.environ, "AGENTBOX_DATA_DIR": str(self.dir)},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("try: "):
                return
        raise AssertionError((self.dir / "log").read_text())

    def stop(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.communicate(timeout=120)
        self._log.close()

    def end(self) -> None:
        """Ends it with its sandboxes."""
        if self._process.poll() is None:
            self.stop(signal.SIGKILL)
        self.start("--ephemeral")
        self.stop(signal.SIGTERM)
        shutil.rmtree(self.dir)


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    program, images = os.environ.get("AGENTBOX_BIN"), os.environ.get("AGENTBOX_TEST_DIR")
    if not program or not images:
        pytest.skip("AGENTBOX_BIN and AGENTBOX_TEST_DIR name no program and images")
    server = Server(program, images)
    yield server
    server.end()


def test_stream_and_command_outlive_the_server(own: Server) -> None:
    """Whoever follows a command, or waits for it, has all of it although the server was killed meanwhile."""
    with agentbox.Client(own.url, "", retries=12) as client, client.create(memory="160m") as box:
        results: list[agentbox.ExecResult] = []
        waiting = threading.Thread(target=lambda: results.append(box.exec("echo x >>ran; until [ -e go ]; do sleep 0.1; done; cat ran")))
        waiting.start()
        box.exec("until [ -e ran ]; do sleep 0.1; done")
        stream = box.stream("echo begun; until [ -e go ]; do sleep 0.1; done; echo é; exit 5", on_disconnect="keep")
        events = iter(stream)
        first = next(events)
        own.stop(signal.SIGKILL)
        own.start()
        box.files.write("go", "")
        rest = list(events)
        waiting.join(timeout=120)
    assert first.type == "stdout" and first.text == "begun\n"
    assert [e.text for e in rest if e.type != "exit"] == ["é\n"] and stream.result and stream.result.exit_code == 5
    assert [(r.exit_code, r.stdout) for r in results] == [(0, "x\n")]


def test_b037_killed_server_gives_no_result(own: Server) -> None:
    """Nobody knows how a command ended when its server does not come back."""
    with agentbox.Client(own.url, "", retries=0, reconnect=1) as client:
        box = client.create(memory="160m")
        stream = box.stream("echo begun; sleep 600")
        events = iter(stream)
        assert next(events).type == "stdout"
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                box.exec("echo >waits; sleep 600")
            except agentbox.ConnectionFailed as e:
                failures.append(e)

        waiting = threading.Thread(target=wait)
        waiting.start()
        box.exec("until [ -e waits ]; do sleep 0.1; done")
        own.stop(signal.SIGKILL)
        with pytest.raises(agentbox.ConnectionFailed):
            list(events)
        waiting.join(timeout=120)
        assert stream.result is None and len(failures) == 1
