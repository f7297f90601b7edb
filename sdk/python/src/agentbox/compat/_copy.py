"""Copies between this machine and a sandbox, to the places where ``docker cp`` puts them."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from agentbox import errors
from agentbox._async.box import AsyncBox

LocalPath = str | os.PathLike[str]


class CopyError(Exception):
    """Why something was not copied."""


async def to_sandbox(box: AsyncBox, local: LocalPath, remote: str) -> None:
    """Copies a file or tree into a sandbox. A relative path begins at its root."""
    source, target = Path(local), _rooted(remote)
    if not source.exists():
        raise CopyError(f"{source} is not there")
    kind = await _kind(box, target)
    if kind == "dir":
        if not _names_content(local):
            target = posixpath.join(target, source.resolve().name)
    elif kind and source.is_dir():
        raise CopyError(f"{target} is no directory")
    elif not kind and source.is_file() and remote.endswith("/"):
        raise CopyError(f"the directory {target} is not there")
    elif await _kind(box, posixpath.dirname(target)) != "dir":
        raise CopyError(f"the directory {posixpath.dirname(target)} is not there")
    mode = None if source.is_dir() else f"{source.stat().st_mode & 0o777:o}"
    await box.files.upload(source, target, mode=mode)


async def from_sandbox(box: AsyncBox, remote: str, local: LocalPath) -> None:
    """Copies a file or tree out of a sandbox. A relative path begins at its root."""
    source, target = _rooted(remote), Path(local)
    info = await box.files.stat(source, follow=True)
    if target.is_dir():
        if not _names_content(remote):
            target = target / posixpath.basename(source)
    elif info.type == "dir" and target.exists():
        raise CopyError(f"{target} is no directory")
    elif info.type != "dir" and os.fspath(local).endswith(os.sep) or not target.parent.is_dir():
        raise CopyError(f"the directory above {target} is not there")
    await box.files.download(source, target)
    if info.type != "dir":
        target.chmod(int(info.mode, 8) & 0o755 | 0o600)


def _rooted(remote: str) -> str:
    return posixpath.normpath("/" + remote.lstrip("/"))


def _names_content(path: LocalPath) -> bool:
    """Whether a path stands for what is in a directory."""
    return os.fspath(path).endswith("/.")


async def _kind(box: AsyncBox, path: str) -> str:
    """The type of a file of the sandbox, behind links; empty: it is not there."""
    try:
        return (await box.files.stat(path, follow=True)).type
    except errors.SandboxGone:
        raise
    except errors.NotFound:
        return ""
