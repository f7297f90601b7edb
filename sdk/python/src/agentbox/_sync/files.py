# Made from _async/files.py by tools/unasync.py: change that one.
"""Files of a sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agentbox import _blocking, errors
from agentbox._sync.http import HTTP
from agentbox._decode import decode
from agentbox._local import LocalPath, Progress, Source, pack, replacing, size_of
from agentbox._unpack import unpack
from agentbox._wire import Duration, Request, get, given, path_of, post, seconds
from agentbox.models import Change, Copied, File, Found, FoundLines

TAR = "application/x-tar"
GZIP = "application/gzip"


#: How many bytes of a file ``read`` keeps in memory.
MOST_READ = 256 << 20


def whole(path: str, pieces: Iterator[bytes]) -> bytes:
    """All of a file, unless that is too much."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MOST_READ:
            raise errors.TooLarge(f"{path} has more than {MOST_READ} bytes: use read_stream or download", field="path")
        kept.append(piece)
    return b"".join(kept)


#: What a tar ends with.
END = bytes(1024)


def whole_archive(pieces: Iterator[bytes], gzip: bool) -> Iterator[bytes]:
    """An archive in pieces, with its end.

    What is between may end an answer that broke off as if it were whole. Who unpacks
    sees that where a file is cut, or a tar.gz, but not where a tar is cut between two.
    """
    tail = b""
    for piece in pieces:
        tail = (tail + piece if len(piece) < len(END) else piece)[-len(END) :]
        yield piece
    if not gzip and tail != END:
        raise errors.ConnectionFailed("the archive did not come whole: its end is missing")


class Files:
    """The files of a sandbox; relative paths begin at its directory.

    ``user`` says whose rights hold; default: the sandbox's user. A file changes as a
    whole or not at all, except where it is appended to.
    """

    def __init__(self, http: HTTP, box: str) -> None:
        self._http = http
        self._box = box

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self._box, "files", *parts)

    def read(self, path: str, *, offset: int = 0, length: int | None = None, user: str | None = None) -> bytes:
        """The bytes of a file, or of a part of it. A part behind its end is :class:`~agentbox.OutOfRange`.

        More than 256 MiB are :class:`~agentbox.TooLarge`, since a sandbox can have a file
        of any size: ``read_stream`` and ``download`` hold little of it.
        """
        return whole(path, self.read_stream(path, offset=offset, length=length, user=user))

    def read_text(self, path: str, *, encoding: str = "utf-8", user: str | None = None) -> str:
        """A file as text. What is not in the encoding is a UnicodeDecodeError, never left out."""
        return (self.read(path, user=user)).decode(encoding)

    def read_stream(
        self,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> Iterator[bytes]:
        """The bytes of a file in pieces, as they come."""
        request = get(self._path(), path=path, user=user)
        if offset or length is not None:
            if offset < 0 or (length is not None and length < 1):
                raise errors.InvalidArgument("an offset is 0 or more, and a length 1 or more", field="offset")
            part = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
            request = Request("GET", request.path, request.params, {"Range": part}, repeatable=True)
        for piece in self._http.download(request, progress):
            yield piece

    def write(
        self,
        path: str,
        data: Source | Iterable[bytes],
        *,
        mode: str | None = None,
        append: bool = False,
        owner: str | None = None,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes a file; missing directories are made.

        ``data`` is bytes, a text, an open binary file or bytes in pieces, none of which
        is held as a whole. ``mode`` is octal, such as ``"755"``; default: that of the
        file, 644 for a new one.
        """
        params = {"path": path, "mode": mode, "append": append, "owner": owner, "user": user}
        self._send(self._path(), params, "application/octet-stream", data, progress)

    def upload(
        self,
        local: LocalPath,
        path: str,
        *,
        mode: str | None = None,
        owner: str | None = None,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes a local file, or a local directory with what is in it, to ``path``."""
        if os.path.isdir(local):
            if mode or owner:
                raise errors.InvalidArgument("a directory keeps its modes, and is the user's", field="mode")
            with tempfile.TemporaryFile() as tar:
                _blocking.run(pack, Path(local), tar)
                tar.seek(0)
                self.mkdir(path, user=user)
                self.write_archive(path, tar, user=user, progress=progress)
            return
        with open(local, "rb") as f:
            self.write(path, f, mode=mode, owner=owner, user=user, progress=progress)

    def download(
        self,
        path: str,
        local: LocalPath,
        *,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Reads a file, or a directory with what is in it, to ``local``.

        A local file changes when all has come, or not at all. Of a directory, special
        files and links that lead out of it are left out; an archive with a name that
        leads out is refused with a ``tarfile.TarError``.
        """
        if (self.stat(path, follow=True, user=user)).type == "dir":
            with tempfile.TemporaryFile() as tar:
                for piece in self.read_archive(path, user=user, progress=progress):
                    _blocking.write(tar, piece)
                tar.seek(0)
                _blocking.run(unpack, tar, Path(local))
            return
        with replacing(Path(local)) as f:
            for piece in self.read_stream(path, user=user, progress=progress):
                _blocking.write(f, piece)

    def read_archive(
        self,
        path: str = ".",
        *,
        gzip: bool = False,
        exclude: Sequence[str] = (),
        user: str | None = None,
        progress: Progress | None = None,
    ) -> Iterator[bytes]:
        """A directory as a tar, or a tar.gz, in pieces.

        Special files and what the user may not read are left out. So is what matches
        ``exclude``, with what is in it; a pattern without ``/`` is for names. A tar that
        does not come whole is :class:`~agentbox.ConnectionFailed`.
        """
        params = {"path": path, "exclude": list(exclude), "user": user}
        request = Request("GET", self._path("archive"), params, archive_headers(gzip), repeatable=True)
        for piece in whole_archive(self._http.download(request, progress), gzip):
            yield piece

    def write_archive(
        self,
        path: str,
        archive: Source | Iterable[bytes],
        *,
        gzip: bool = False,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Unpacks a tar, or a tar.gz, into a directory.

        Entries that would lead out of the directory are refused; what came before an
        error stays.
        """
        self._send(self._path("archive"), {"path": path, "user": user}, GZIP if gzip else TAR, archive, progress)

    def _send(
        self, path: str, params: Mapping[str, object], kind: str, data: Source | Iterable[bytes], progress: Progress | None
    ) -> None:
        self._http.call(upload(path, params, kind, data, progress))

    def list(self, path: str = ".", *, depth: int = 1, user: str | None = None) -> Iterator[File]:
        """What is in a directory, by name, down to ``depth`` levels."""
        for file in self._http.records(File, self._path("list"), {"path": path, "depth": depth, "user": user, "limit": 1000}):
            yield file

    def stat(self, path: str, *, follow: bool = False, user: str | None = None) -> File:
        """Describes a file; with ``follow`` what a symlink leads to."""
        return self._http.record(File, get(self._path("stat"), path=path, follow=follow, user=user))

    def exists(self, path: str, *, user: str | None = None) -> bool:
        """Whether there is something of that name."""
        try:
            self.stat(path, user=user)
        except errors.SandboxGone:
            raise
        except errors.NotFound as e:
            if e.detail == "Sandbox not found":
                raise
            return False
        return True

    def remove(self, path: str, *, recursive: bool = False, user: str | None = None) -> None:
        """Removes a file or, with ``recursive``, a directory with what is in it."""
        self._http.call(Request("DELETE", self._path(), {"path": path, "recursive": recursive, "user": user}))

    def mkdir(
        self,
        path: str,
        *,
        mode: str | None = None,
        parents: bool = True,
        owner: str | None = None,
        user: str | None = None,
    ) -> None:
        """Makes a directory; with ``parents`` those above, too, and one that is there is no error."""
        self._http.call(post(self._path("mkdir"), given(path=path, mode=mode, parents=parents, owner=owner, user=user)))

    def move(self, source: str, target: str, *, overwrite: bool = False, user: str | None = None) -> None:
        """Moves to a new name, which is not the directory that it goes to."""
        body = given(**{"from": source, "to": target, "overwrite": overwrite, "user": user})
        self._http.call(post(self._path("move"), body, patience=None))

    def copy(
        self, source: str, target: str, *, recursive: bool = False, overwrite: bool = False, user: str | None = None
    ) -> Copied:
        """Copies to a new name; a directory with ``recursive``."""
        body = given(**{"from": source, "to": target, "recursive": recursive, "overwrite": overwrite, "user": user})
        return self._http.record(Copied, post(self._path("copy"), body, patience=None))

    def chmod(self, path: str, mode: str, *, recursive: bool = False, user: str | None = None) -> int:
        """Changes permissions, which are octal, and tells of how many files."""
        body = given(path=path, mode=mode, recursive=recursive, user=user)
        return int((self._http.call(post(self._path("chmod"), body, patience=None)))["changed"])

    def chown(self, path: str, owner: str, *, recursive: bool = False, user: str | None = None) -> int:
        """Changes the owner, ``user``, ``user:group`` or ``:group``, and tells of how many files. By default as root."""
        body = given(path=path, owner=owner, recursive=recursive, user=user)
        return int((self._http.call(post(self._path("chown"), body, patience=None)))["changed"])

    def symlink(self, path: str, target: str, *, overwrite: bool = False, user: str | None = None) -> None:
        """Makes a link at ``path`` that leads to ``target``, which need not be there."""
        self._http.call(post(self._path("symlink"), given(path=path, target=target, overwrite=overwrite, user=user)))

    def glob(
        self,
        pattern: str | Sequence[str],
        *,
        path: str = ".",
        exclude: Sequence[str] = (),
        limit: int | None = None,
        timeout: Duration | None = None,
        user: str | None = None,
    ) -> Found:
        """Finds files by their names; ``**`` stands for any directories."""
        request = get(
            self._path("glob"),
            pattern=[pattern] if isinstance(pattern, str) else list(pattern),
            path=path,
            exclude=list(exclude),
            limit=limit,
            timeout=seconds(timeout),
            user=user,
        )
        return self._http.record(Found, request)

    def search(
        self,
        pattern: str,
        *,
        path: str = ".",
        literal: bool = False,
        ignore_case: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        context: int | None = None,
        limit: int | None = None,
        limit_per_file: int | None = None,
        timeout: Duration | None = None,
        user: str | None = None,
    ) -> FoundLines:
        """Finds lines in files by an expression of RE2 or, with ``literal``, a text."""
        request = get(
            self._path("search"),
            pattern=pattern,
            path=path,
            literal=literal,
            ignore_case=ignore_case,
            include=list(include),
            exclude=list(exclude),
            context=context,
            limit=limit,
            limit_per_file=limit_per_file,
            timeout=seconds(timeout),
            user=user,
        )
        return self._http.record(FoundLines, request)

    def watch(self, path: str = ".", *, recursive: bool = False, user: str | None = None) -> Iterator[Change]:
        """Follows the changes in a directory, until it is gone.

        The first item is of the type ``ready``: what is changed from then on is told.
        """
        request = get(self._path("watch"), path=path, recursive=recursive, user=user)
        for event in self._http.events(request):
            if event.name == "end":
                return
            if event.name == "ready":
                yield Change("ready", path, "", None)
            elif event.name in CHANGES:
                yield decode(Change, {"type": event.name, **event.fields()})


CHANGES = ("create", "write", "remove", "rename", "chmod", "overflow")


def archive_headers(gzip: bool) -> dict[str, str]:
    """How an archive is asked for: as it is, not packed on its way."""
    return {"Accept": GZIP if gzip else TAR, "Accept-Encoding": "identity"}


def upload(
    path: str, params: Mapping[str, object], kind: str, data: Source | Iterable[bytes], progress: Progress | None
) -> Request:
    """A PUT of bytes that are not held as a whole."""
    total = size_of(data)
    headers = {"Content-Type": kind}
    if total is not None:
        headers["Content-Length"] = str(total)
    return Request("PUT", path, params, headers, body=lambda: _blocking.chunks(data, progress, total), patience=None)
