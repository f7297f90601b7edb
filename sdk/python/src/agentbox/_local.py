"""Local files and archives."""

from __future__ import annotations

import os
import secrets
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

#: Bytes that are read at once.
CHUNK = 256 << 10

Source = bytes | str | IO[bytes] | Iterable[bytes]
#: Is told how many bytes were transferred, and of how many; ``None``: not known.
Progress = Callable[[int, int | None], object]
LocalPath = str | os.PathLike[str]


def pieces(source: Source) -> Iterator[bytes]:
    """The bytes of a body in pieces."""
    if isinstance(source, str):
        source = source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        for begin in range(0, len(source), CHUNK):
            yield bytes(source[begin : begin + CHUNK])
    elif hasattr(source, "read"):
        while piece := source.read(CHUNK):
            yield piece
    else:
        yield from source


def size_of(source: object) -> int | None:
    """How many bytes a body has; ``None``: not known."""
    if isinstance(source, str):
        return len(source.encode())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return len(source)
    try:
        f: Any = source
        begin = f.tell()
        end = f.seek(0, os.SEEK_END)
        f.seek(begin)
    except (AttributeError, OSError, ValueError):
        return None
    return end - begin if end > begin else None  # files of /proc have no size


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``target`` at the end of the block; after an error nothing is left of it.

    It has the permissions that the user's new files have.
    """
    part = target.with_name(f".agentbox-{secrets.token_hex(8)}.part")
    try:
        with open(part, "xb") as f:
            yield f
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def pack(local: Path, to: IO[bytes]) -> None:
    """Writes a directory as a tar. Names in it begin at the directory; owners are left out."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(fileobj=to, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(local.iterdir()):
            tar.add(entry, arcname=entry.name, filter=plain)
