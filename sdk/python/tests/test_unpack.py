"""Archives of a hostile sandbox."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import pytest

from agentbox import _unpack
from agentbox._local import pack
from agentbox._unpack import unpack


def archive(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of names, types and links; regular files have "new" in them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o7777
            if kind == tarfile.REGTYPE:
                info.size = 3
            tar.addfile(info, io.BytesIO(b"new"))
    out.seek(0)
    return out


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory for an archive, beside a file that must stay as it is."""
    (tmp_path / "outside").write_text("old")
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "..", "a/../.."])
def test_names_that_lead_out_are_refused(tree: Path, name: str) -> None:
    with pytest.raises(tarfile.TarError, match="leads out"):
        unpack(archive((name, tarfile.REGTYPE, "")), tree)
    assert (tree.parent / "outside").read_text() == "old"


WINDOWS_NAMES = [
    "C:/outside", "C:outside", "c:", "d/C:x", "..\\outside", "d\\..\\..\\outside", "\\outside", "\\\\server\\share\\x", "//?/C:/x", "file:stream", "file::$DATA",
    "CON", "nul", "d/Aux.txt", "COM1", "lpt9.log", "com\u00b2", "NUL .txt", "CONOUT$", ".. ", "... ", "a.", "a ", "d./x", "a\x01b", "a?", "a*", 'a"', "a|b", "<a>",
]  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS_NAMES)
def test_names_that_windows_takes_for_others_are_refused_there(tree: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unpack, "WINDOWS", True)
    for entry in [(name, tarfile.REGTYPE, ""), (name, tarfile.DIRTYPE, ""), ("l", tarfile.SYMTYPE, name), ("h", tarfile.LNKTYPE, name)]:
        with pytest.raises(tarfile.TarError, match="Windows|leads out"):
            unpack(archive(entry), tree)
    assert list(tree.iterdir()) == [] and (tree.parent / "outside").read_text() == "old"


def test_usual_names_are_taken_everywhere(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unpack, "WINDOWS", True)
    names = ["./a b/é.txt", "CONFIG", "com10", "nul-1", ".git/x", "a..b", "LPT.d"]
    unpack(archive(*((n, tarfile.REGTYPE, "") for n in names), ("l", tarfile.SYMTYPE, "../tree/./CONFIG")), tree)
    assert all((tree / n).is_file() for n in names)


@pytest.mark.skipif(_unpack.WINDOWS, reason="they are names of other things there")
def test_names_are_not_windows_elsewhere(tree: Path) -> None:
    unpack(archive(("C:x", tarfile.REGTYPE, ""), ("a\\b", tarfile.REGTYPE, ""), ("NUL", tarfile.REGTYPE, "")), tree)
    assert sorted(p.name for p in tree.iterdir()) == ["C:x", "NUL", "a\\b"]


@pytest.mark.parametrize("link", ["/etc/passwd", "../outside", "..", "a/../../outside", "a/b/../..", "./../outside"])
def test_links_that_lead_out_are_left_out(tree: Path, link: str) -> None:
    unpack(archive(("l", tarfile.SYMTYPE, link), ("h", tarfile.LNKTYPE, link), ("f", tarfile.REGTYPE, "")), tree)
    assert sorted(p.name for p in tree.iterdir() if p.is_file()) == ["f"]
    assert not (tree / "l").is_symlink()


def test_nothing_is_written_through_a_link(tree: Path) -> None:
    (tree / "mine").symlink_to("..")  # of this machine's user
    for entries in (
        [("mine/outside", tarfile.REGTYPE, "")],
        [("mine/made", tarfile.DIRTYPE, "")],
        [("a", tarfile.SYMTYPE, "."), ("a/b", tarfile.REGTYPE, ""), ("mine/outside", tarfile.SYMTYPE, "x")],
    ):
        with pytest.raises(tarfile.TarError, match="in the way"):
            unpack(archive(*entries), tree)
    assert (tree.parent / "outside").read_text() == "old" and not (tree.parent / "made").exists()
    unpack(archive(("mine", tarfile.REGTYPE, "")), tree)  # takes the link's own place
    assert (tree / "mine").read_text() == "new" and not (tree / "mine").is_symlink()


def test_links_are_made_last(tree: Path) -> None:
    unpack(archive(("d/l", tarfile.SYMTYPE, "../e"), ("e/f", tarfile.REGTYPE, ""), ("l2", tarfile.SYMTYPE, "d/l/f")), tree)
    assert (tree / "l2").read_text() == "new"
    with pytest.raises(tarfile.TarError, match="in the way"):  # the place of a link is a directory by then
        unpack(archive(("x", tarfile.SYMTYPE, "e"), ("x/f", tarfile.REGTYPE, "")), tree)
    assert (tree / "x").is_dir() and not (tree / "x").is_symlink()


def test_hard_links_and_special_files(tree: Path) -> None:
    entries = [("f", tarfile.REGTYPE, ""), ("h", tarfile.LNKTYPE, "f"), ("p", tarfile.FIFOTYPE, ""), ("c", tarfile.CHRTYPE, "")]
    unpack(archive(*entries), tree)
    assert sorted(p.name for p in tree.iterdir()) == ["f", "h"]
    assert (tree / "h").read_text() == "new" and (tree / "h").stat().st_nlink == 1
    assert (tree / "f").stat().st_mode & 0o7777 == 0o755  # no setuid, nothing for others to write
    with pytest.raises(tarfile.TarError, match="what is not there"):
        unpack(archive(("again", tarfile.LNKTYPE, "nope")), tree)


def test_what_is_no_archive(tree: Path) -> None:
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(b"no tar" * 1000), tree)


def test_there_and_back(tree: Path, tmp_path: Path) -> None:
    (tree / "d").mkdir()
    (tree / "d/f").write_text("é")
    (tree / "d/l").symlink_to("f")
    (tree / "name\nof é").write_text("")
    with tempfile.TemporaryFile() as packed:
        pack(tree, packed)
        packed.seek(0)
        unpack(packed, tmp_path / "again")
    assert sorted(str(p.relative_to(tmp_path / "again")) for p in (tmp_path / "again").rglob("*")) == ["d", "d/f", "d/l", "name\nof é"]
    assert (tmp_path / "again/d/l").readlink() == Path("f")


def test_what_has_holes_is_left_out(tree: Path) -> None:
    """A small archive must not fill the disk."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("huge")
        info.pax_headers = {"GNU.sparse.map": f"{40 << 20},0", "GNU.sparse.size": str(40 << 20), "GNU.sparse.numblocks": "1"}
        tar.addfile(info)
    for a in (io.BytesIO(out.getvalue()), archive(("f", tarfile.REGTYPE, ""))):
        unpack(a, tree)
    assert [p.name for p in tree.iterdir()] == ["f"]


def test_odd_values(tree: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("late")
        info.pax_headers = {"mtime": "1e300"}
        tar.addfile(info)
    unpack(io.BytesIO(out.getvalue()), tree)
    assert (tree / "late").exists()


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
def test_headers_are_bounded(tree: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 30
    sent = io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + b"a" * (4 << 20))
    with pytest.raises(tarfile.TarError, match="a header of 1073741824 bytes"):
        unpack(sent, tree)
    assert sent.tell() <= 1 << 20, "it is not read"
