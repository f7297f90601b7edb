"""Copies between this machine and a sandbox, to the places where ``docker cp`` puts them."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import httpx

from agentbox import _trees

_CHUNK = 1 << 20


class CopyError(Exception):
    """Why something was not copied."""


async def to_sandbox(http: httpx.AsyncClient, sandbox_id: str, local: str | os.PathLike[str], remote: str) -> None:
    """Copy a file or tree into a sandbox. A relative path begins at its root."""
    source, wants_content = _local_source(local)
    remote, wants_directory = _remote_path(remote)
    kind = await _kind(http, sandbox_id, remote)
    if kind == "dir":
        parent, name = remote, "." if wants_content else source.resolve().name
    elif kind and source.is_dir():
        raise CopyError(f"{remote} is no directory")
    else:
        if not kind and wants_directory and not source.is_dir():
            raise CopyError(f"the directory {remote} is not there")
        parent, name = posixpath.split(remote)
        if await _kind(http, sandbox_id, parent) != "dir":
            raise CopyError(f"the directory {parent} is not there")
    with _trees.pack(source, name) as archive:
        await _send(http, sandbox_id, parent, archive)


async def from_sandbox(http: httpx.AsyncClient, sandbox_id: str, remote: str, local: str | os.PathLike[str]) -> None:
    """Copy a file or tree out of a sandbox. A relative path begins at its root."""
    wants_content = remote.endswith("/.")
    wants_directory = os.fspath(local).endswith(os.sep)
    remote, target = _remote_path(remote)[0], Path(local)
    kind = await _kind(http, sandbox_id, remote)
    if not kind:
        raise CopyError(f"{remote} is not there")
    if target.is_dir():
        target = target if wants_content else target / posixpath.basename(remote)
    elif kind != "dir" and wants_directory:
        raise CopyError(f"the directory {target} is not there")
    elif kind == "dir" and target.exists():
        raise CopyError(f"{target} is no directory")
    with _trees.spool() as received:
        what = "files/archive" if kind == "dir" else "files"
        async with http.stream("GET", _url(sandbox_id, what), params={"path": remote}) as answer:
            _check(answer, await answer.aread() if answer.is_error else b"")
            async for chunk in answer.aiter_raw(_CHUNK):
                received.write(chunk)
        received.seek(0)
        if kind == "dir":
            _trees.unpack(received, target)
        else:
            with target.open("wb") as file:
                shutil.copyfileobj(received, file)


def _local_source(local: str | os.PathLike[str]) -> tuple[Path, bool]:
    """What is to be copied, and whether it is the content of a directory alone."""
    source = Path(local)
    if not source.exists():
        raise CopyError(f"{source} is not there")
    return source, os.fspath(local).endswith(os.sep + ".")


def _remote_path(remote: str) -> tuple[str, bool]:
    """A path from the root on, and whether it is written as that of a directory."""
    return posixpath.normpath("/" + remote.lstrip("/")), remote.endswith(("/", "/."))


async def _kind(http: httpx.AsyncClient, sandbox_id: str, path: str) -> str:
    """The type of a file of the sandbox, behind links; empty: it is not there."""
    answer = await http.get(_url(sandbox_id, "files/stat"), params={"path": path, "follow": "true"})
    if answer.status_code == httpx.codes.NOT_FOUND:
        return ""
    _check(answer, answer.content)
    return str(answer.json()["type"])


async def _send(http: httpx.AsyncClient, sandbox_id: str, directory: str, archive: IO[bytes]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while chunk := archive.read(_CHUNK):
            yield chunk

    headers = {"Content-Type": "application/x-tar"}
    answer = await http.put(_url(sandbox_id, "files/archive"), params={"path": directory}, content=chunks(), headers=headers)
    _check(answer, answer.content)


def _url(sandbox_id: str, what: str) -> str:
    return f"/api/v1/sandboxes/{quote(sandbox_id, safe='')}/{what}"


def _check(answer: httpx.Response, body: Any) -> None:
    if answer.is_error:
        raise CopyError(f"the server answers {answer.status_code}: {body.decode(errors='replace')}")
