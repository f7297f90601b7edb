"""Files and archives on a real server."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentbox

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe"


def test_b100_bytes(box: agentbox.Box) -> None:
    """Reading gives bytes, as they are; text is asked for, and never lossy."""
    box.files.write("image.png", PNG)
    got = box.files.read("image.png")
    assert type(got) is bytes and got == PNG
    assert b"".join(box.files.read_stream("image.png")) == PNG
    with pytest.raises(UnicodeDecodeError):
        box.files.read_text("image.png")
    assert box.files.read_text("image.png", encoding="latin-1") == PNG.decode("latin-1")
    box.files.write("text", "né\r\n")
    assert box.files.read("text") == "né\r\n".encode() and box.files.read_text("text") == "né\r\n"


def test_b097_empty(box: agentbox.Box, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    box.files.write("empty", "full")
    for empty in ("", b"", io.BytesIO(), iter(())):
        box.files.write("empty", empty)  # type: ignore[arg-type]
        assert box.files.read("empty") == b"" and box.files.stat("empty").size == 0
    box.files.upload(tmp_path / "empty", "empty-too")
    assert {f.name: f.size for f in box.files.list()}["empty-too"] == 0


def test_parts(box: agentbox.Box) -> None:
    box.files.write("digits", "0123456789")
    assert box.files.read("digits", offset=3) == b"3456789"
    assert box.files.read("digits", offset=3, length=2) == b"34"
    assert box.files.read("digits", length=4) == b"0123"
    assert box.files.read("digits", offset=8, length=100) == b"89"
    with pytest.raises(agentbox.OutOfRange):
        box.files.read("digits", offset=10)
    for bad in ({"offset": -1}, {"length": 0}):
        with pytest.raises(agentbox.InvalidArgument):
            box.files.read("digits", **bad)
    box.files.write("digits", "ab", append=True)
    assert box.files.read_text("digits") == "0123456789ab"


def test_tree(box: agentbox.Box) -> None:
    files = box.files
    files.mkdir("tree/a/b", mode="700")
    files.write("tree/a/x.txt", "one\ntwo words\n", mode="600")
    files.symlink("tree/link", "a/x.txt")
    assert [(f.path.removeprefix("./"), f.type) for f in files.list("tree", depth=3)] == [
        ("tree/a", "dir"),
        ("tree/a/b", "dir"),
        ("tree/a/x.txt", "file"),
        ("tree/link", "symlink"),
    ]
    assert files.stat("tree/link").target == "a/x.txt" and files.stat("tree/link", follow=True).size == 14
    assert files.stat("tree/a/x.txt").mode == "0600" and files.stat("tree/a/b").mode == "0700"
    assert files.chmod("tree/a", "750", recursive=True) == 3
    assert files.chown("tree/a/x.txt", "root:root") == 1 and files.stat("tree/a/x.txt").user == "root"
    assert files.chown("tree/a/x.txt", "user:user") == 1
    assert files.copy("tree/a", "tree/c", recursive=True).entries == 2
    files.move("tree/c/x.txt", "tree/y.txt")
    with pytest.raises(agentbox.AlreadyExists):
        files.move("tree/a/x.txt", "tree/y.txt")
    files.move("tree/y.txt", "tree/a/x.txt", overwrite=True)
    assert [f.name for f in files.glob(["**/*.txt", "**/b"], path="tree").items] == ["b", "x.txt", "b"]
    lines = files.search("TWO", path="tree", ignore_case=True, include=["*.txt"], context=1)
    assert [(x.line, x.text, x.before) for x in lines.items] == [(2, "two words", ["one"])]
    assert files.exists("tree/link") and not files.exists("tree/none")
    with pytest.raises(agentbox.Conflict):
        files.remove("tree")
    files.remove("tree", recursive=True)
    with pytest.raises(agentbox.NotFound):
        files.read("tree/a/x.txt")
    with pytest.raises(agentbox.PermissionDenied):
        files.write("/etc/passwd", "x")
    files.write("/etc/motd", "x", user="root")


def test_exists_of_nothing(client: agentbox.Client, box: agentbox.Box) -> None:
    """Without the sandbox nobody knows."""
    gone = client.create(memory="160m")
    gone.destroy()
    with pytest.raises(agentbox.SandboxGone):
        gone.files.exists("x")
    gone.files._box = "0" * 64  # one that never was
    with pytest.raises(agentbox.NotFound):
        gone.files.exists("x")


def test_watch(box: agentbox.Box) -> None:
    changes = box.files.watch(".")
    assert next(changes).type == "ready"
    box.files.write("watched", "1")
    first = next(changes)
    assert (first.type, first.name) == ("create", "watched")
    changes.close()  # type: ignore[attr-defined]


def pieces(n: int, digest: "hashlib._Hash") -> Iterator[bytes]:
    for i in range(n):
        piece = i.to_bytes(4, "big") * (1 << 18)
        digest.update(piece)
        yield piece


def test_transfers_are_not_held(box: agentbox.Box, tmp_path: Path) -> None:
    """24 MiB go up and down in a few, and whoever wants hears of the progress."""
    sent, seen = hashlib.sha256(), []
    tracemalloc.start()
    box.files.write("big", pieces(24, sent), progress=lambda done, total: seen.append((done, total)))
    box.files.download("big", tmp_path / "big", progress=lambda done, total: seen.append((done, total)))
    box.files.upload(tmp_path / "big", "big2", progress=lambda done, total: seen.append((done, total)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    n = 24 << 20
    assert seen[23] == (n, None) and seen[24] == (0, n) and seen[-1] == (n, n) and sum(s == (n, n) for s in seen) == 2
    assert hashlib.sha256((tmp_path / "big").read_bytes()).digest() == sent.digest()
    assert box.exec("sha256sum big2").stdout.split()[0] == sent.hexdigest()
    box.files.remove("big")
    box.files.remove("big2")


def test_what_is_read_is_bounded(box: agentbox.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox can make a file of any size."""
    monkeypatch.setattr("agentbox._sync.files.MOST_READ", 1000)
    box.exec("truncate -s 1000 most; truncate -s 1001 more")
    assert len(box.files.read("most")) == len(box.files.read("more", length=1000)) == 1000
    for read in (box.files.read, box.files.read_text):
        with pytest.raises(agentbox.TooLarge, match="more has more than 1000 bytes"):
            read("more")


def test_download_is_whole_or_not_there(box: agentbox.Box, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("before")
    box.files.write("f", b"x" * 100_000)

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        box.files.download("f", target, progress=stop)
    assert target.read_text() == "before" and os.listdir(tmp_path) == ["f"]


def test_archives(box: agentbox.Box, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (source / "é").write_text("accent")
    seen: list[tuple[int, int | None]] = []
    box.files.upload(source, "project", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert box.exec("ls project; project/sub/run.sh").exit_code == 0
    box.files.download("project", tmp_path / "back")
    assert (tmp_path / "back" / "é").read_text() == "accent" and os.access(tmp_path / "back" / "sub" / "run.sh", os.X_OK)

    packed = b"".join(box.files.read_archive("project", gzip=True, exclude=["*.sh"]))
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        assert sorted(n.removeprefix("./").rstrip("/") for n in tar.getnames() if n != ".") == ["sub", "é"]
    box.files.mkdir("again")
    box.files.write_archive("again", packed, gzip=True)
    assert box.files.read_text("again/é") == "accent"


def test_hostile_archive(box: agentbox.Box, tmp_path: Path) -> None:
    """A sandbox can't write beside the directory that it is read to: what leads out is left out."""
    box.exec("mkdir -p evil; ln -s /etc evil/etc; ln -s ../../outside evil/up; mkfifo evil/pipe; echo fine >evil/fine")
    box.files.download("evil", tmp_path / "evil")
    assert os.listdir(tmp_path / "evil") == ["fine"] and not (tmp_path / "outside").exists()


def test_upload_of_what_is_not_there(box: agentbox.Box, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        box.files.upload(tmp_path / "none", "none")
    assert not box.files.exists("none")
