"""Archives of sandboxes as local trees.

What a sandbox sends is not trusted: nothing of it is written through a link, and no
link is made that leads out of the tree. tarfile's own filter is not used: it refuses
the whole archive for one such link, and has let links lead out.
"""

from __future__ import annotations

import logging
import os
import posixpath
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)

#: The latest time that a file gets, in seconds: some file systems have no later one.
LATEST = 1 << 33

WINDOWS = os.name == "nt"
#: Names that are no files on Windows, with whatever ending.
DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))}
SUPERSCRIPTS = str.maketrans("\u00b9\u00b2\u00b3", "123")  # which it takes for these digits


#: How long a header that only tells of the next may be, in bytes: tarfile reads it
#: whole. No path is a tenth of it.
MAX_HEADER = 64 << 10
#: Those are a name that is long, a link's, and the attributes of POSIX.
EXTRA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class _Entry(tarfile.TarInfo):
    """An entry whose headers are bounded."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in EXTRA and entry.size > MAX_HEADER:
            raise tarfile.TarError(f"the archive has a header of {entry.size} bytes, at most {MAX_HEADER} are allowed")
        return entry


def unpack(archive: IO[bytes], into: Path) -> None:
    """Writes the files of a tar into a directory, which is made if it is missing.

    Raises ``tarfile.TarError`` for an archive that is none, or that has a name that
    leads out or through a link, or that Windows, if this is it, takes for another.
    Links that lead out of the tree, special files, and files with holes, whose size an
    archive can make up, are left out, which is logged.
    """
    into.mkdir(parents=True, exist_ok=True)
    directories: list[tuple[Path, int]] = []
    links: list[tuple[Path, str]] = []
    with tarfile.open(fileobj=archive, mode="r|", tarinfo=_Entry) as tar:
        for entry in tar:
            if "\0" in entry.name + entry.linkname:
                raise tarfile.TarError(f"the archive has a name that is none: {entry.name!r}")
            if WINDOWS and not (_plain(entry.name) and _plain(entry.linkname)):
                raise tarfile.TarError(f"the archive has a name that Windows takes for another: {entry.name!r}")
            name = posixpath.normpath(entry.name)
            if posixpath.isabs(name) or name.split("/", 1)[0] == "..":
                raise tarfile.TarError(f"the archive has a name that leads out: {entry.name!r}")
            if name == ".":
                continue
            target = _parents(into, name) / posixpath.basename(name)
            if entry.isdir():
                _directory(target)
                directories.append((target, entry.mode))
            elif entry.isreg() and not entry.issparse():
                with _created(target, entry.mode) as file, _content(tar, entry) as data:
                    shutil.copyfileobj(data, file)
                when = min(max(entry.mtime, 0), LATEST)
                os.utime(target, (when, when))
            elif entry.issym() and _stays(name, entry.linkname):
                links.append((target, entry.linkname))
            elif entry.islnk() and _stays("", entry.linkname):
                source = posixpath.normpath(entry.linkname)
                _copy(_parents(into, source) / posixpath.basename(source), target)
            else:
                logger.warning("left out %s: it is no file, has holes, or leads out of the tree", entry.name)
    for target, link in links:  # last, so that nothing is written through one
        _removed(target)
        target.symlink_to(link)
    for target, mode in directories:
        target.chmod(mode & 0o755 | stat.S_IRWXU)


def _plain(name: str) -> bool:
    """Whether Windows takes each part of a name for itself.

    It takes backslashes for separators and a colon for a drive or a stream of a file,
    leaves out dots and spaces at an end, and has devices in every directory.
    """
    for part in name.split("/"):
        if part in ("", ".", ".."):
            continue
        if part[-1] in ". " or any(letter in '<>:"|?*\\' or letter < " " for letter in part):
            return False
        if part.split(".", 1)[0].rstrip(" ").translate(SUPERSCRIPTS).upper() in DEVICES:
            return False
    return True


def _parents(into: Path, name: str) -> Path:
    """The directory of a name, made as far as it is missing."""
    directory = into
    for part in posixpath.dirname(name).split("/"):
        if part:
            directory = directory / part
            _directory(directory)
    return directory


def _directory(path: Path) -> None:
    try:
        path.mkdir()
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise tarfile.TarError(f"{str(path)!r} is in the way: it is no directory") from None


def _created(path: Path, mode: int) -> IO[bytes]:
    """A new file. It is never setuid, nor for others to write."""
    _removed(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o755 | stat.S_IRUSR | stat.S_IWUSR), "wb")


def _removed(path: Path) -> None:
    """Make place for a file. A directory is not removed for one."""
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as e:
        raise tarfile.TarError(f"{str(path)!r} is in the way: {e}") from e


def _copy(source: Path, target: Path) -> None:
    """A hard link becomes a file of its own."""
    try:
        info = source.lstat()
    except FileNotFoundError:
        raise tarfile.TarError(f"{str(target)!r} is a link to what is not there") from None
    if not stat.S_ISREG(info.st_mode):
        raise tarfile.TarError(f"{str(target)!r} is a link to what is no file")
    if source != target:
        with source.open("rb") as data, _created(target, info.st_mode) as file:
            shutil.copyfileobj(data, file)


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    data = tar.extractfile(entry)
    if data is None:
        raise tarfile.TarError(f"the archive has no content of {entry.name!r}")
    return data


def _stays(name: str, link: str) -> bool:
    """Whether a link at a place of the tree leads to one, through whatever other links of it."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    steps = link.split("/")
    while steps and steps[0] in ("..", "."):
        steps.pop(0)
    # Behind a name, which may be a link, ".." leads anywhere.
    return not posixpath.isabs(link) and ".." not in steps and end.split("/", 1)[0] != ".."
