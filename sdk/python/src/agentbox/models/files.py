"""Files of sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True)
class File:
    """A file, directory or link of a sandbox."""

    path: str
    name: str
    type: Literal["file", "dir", "symlink", "fifo", "socket", "device"]
    #: Where a symlink leads.
    target: str
    #: Permissions, octal, with setuid, setgid and sticky.
    mode: str
    size: int
    uid: int
    gid: int
    #: Empty: the sandbox has no name for it.
    user: str
    group: str
    mtime: datetime
    atime: datetime
    ctime: datetime
    nlink: int
    #: The path exactly, if it is no UTF-8.
    path_base64: bytes | None = None


@dataclass(frozen=True)
class Found:
    """Files that were found by their names."""

    items: list[File]
    #: Why there may be more: ``count``, ``size`` or ``time``; empty: that is all.
    truncated: str
    #: Directories that the user may not read.
    skipped: int


@dataclass(frozen=True)
class Line:
    """A line with a match."""

    path: str
    #: From 1.
    line: int
    #: Of the line in the file.
    offset: int
    #: Of the first match in the line.
    start: int
    end: int
    text: str
    #: Where ``text`` begins in the line.
    text_start: int
    #: ``text`` is not the whole line.
    cut: bool
    before: list[str]
    after: list[str]


@dataclass(frozen=True)
class FoundLines:
    """Lines that were found."""

    items: list[Line]
    #: Why there may be more: ``count``, ``size`` or ``time``; empty: that is all.
    truncated: str
    #: How many files were searched, and left out because they are binary.
    files: int
    binary: int
    #: Of which only the first 64 KiB were searched.
    long_lines: int
    #: Files and directories that were left out otherwise.
    skipped: int


@dataclass(frozen=True)
class LeftOutFile:
    """A file that was not copied."""

    path: str
    #: ``fifo``, ``socket``, ``device``, ``denied``, ``size`` or ``count``.
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """What was not copied."""

    total: int
    #: The first hundred.
    first: list[LeftOutFile]


@dataclass(frozen=True)
class Copied:
    """What was copied."""

    #: Files, directories and links.
    entries: int
    skipped: LeftOut


@dataclass(frozen=True)
class Change:
    """A change in a directory that is watched."""

    #: ``create``, ``write``, ``remove``, ``rename``, ``chmod``, or ``overflow``: something was
    #: missed, read the tree again.
    type: str
    path: str
    #: Below the directory; empty: the directory itself.
    name: str
    #: What is there now; ``None``: nothing, or not known.
    file: File | None
