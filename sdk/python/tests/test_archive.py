"""Archives that do not come whole."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import httpx
import pytest

import agentbox

OUT = io.BytesIO()
with tarfile.open(fileobj=OUT, mode="w") as tar:
    for name in ("one", "two"):
        info = tarfile.TarInfo(name)
        info.size = 1024
        tar.addfile(info, io.BytesIO(b"x" * 1024))
#: Both files, and all that must stand behind them.
WHOLE = OUT.getvalue()[: 2 * (512 + 1024) + 1024]


def client(archive: bytes, step: int) -> agentbox.Client:
    """A client of a server that has one directory, whose archive comes in pieces of so many bytes."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/archive"):
            return httpx.Response(200, content=iter([archive[i : i + step] for i in range(0, len(archive), step)]))
        file = dict.fromkeys(["path", "name", "mode", "user", "group", "target"], "d") | {"type": "dir"}
        file |= dict.fromkeys(["size", "uid", "gid", "nlink"], 0) | dict.fromkeys(["mtime", "atime", "ctime"], "2026-01-02T03:04:05Z")
        return httpx.Response(200, text=json.dumps(file))

    return agentbox.Client("http://server", "key", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("step", [1 << 20, 1000, 300])
def test_end(step: int) -> None:
    with client(WHOLE, step) as c:
        assert b"".join(c.volumes.read_archive("v")) == WHOLE
    for cut in (0, 1, 512, 1536, len(WHOLE) - 1024, len(WHOLE) - 512, len(WHOLE) - 1):
        with client(WHOLE[:cut], step) as c:
            with pytest.raises(agentbox.ConnectionFailed, match="did not come whole"):
                list(c.volumes.read_archive("v"))
            list(c.volumes.read_archive("v", gzip=True))  # has an end of its own


def test_directory_that_was_cut_is_not_written(tmp_path: Path) -> None:
    from agentbox._sync.files import Files

    with client(WHOLE[:1536], 512) as c:
        files = Files(c._http, "box")
        with pytest.raises(agentbox.ConnectionFailed):
            files.download("d", tmp_path / "d")
    assert not (tmp_path / "d").exists()
