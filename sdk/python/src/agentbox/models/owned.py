"""What an owner has beside sandboxes, and what a server tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Volume:
    """Files that outlive sandboxes."""

    name: str
    size: int
    #: How the server keeps it: ``image``, ``quota`` or ``directory``.
    kind: str
    #: ``disk``, if the server can't hold it to its size.
    not_enforced: list[str]
    created_at: datetime
    #: Ids of the sandboxes that have it, stopped ones included.
    used_by: list[str]
    #: What it takes on the server's disk; ``None`` in lists.
    used: int | None = None


@dataclass(frozen=True)
class Image:
    """An image that sandboxes can be made of."""

    name: str
    digest: str
    size: int
    #: ``recipe``, ``tar``, ``archive`` or ``registry``.
    source: str
    #: Who commands run as; empty: 1000.
    user: str
    #: Where commands run; empty: /.
    workdir: str
    created_at: datetime


@dataclass(frozen=True)
class Secret:
    """A secret that sandboxes use and never see."""

    name: str
    #: Hosts whose requests it is put into.
    hosts: list[str]
    #: Header that it stands in.
    header: str
    #: What the header becomes, with ``{}`` where the value goes.
    format: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class Key:
    """An API key, without the key itself."""

    id: str
    #: Your word for it.
    name: str
    #: Whose things the key reaches.
    owner: str
    admin: bool
    created_at: datetime
    #: Since when it lets nobody in; ``None``: it is good.
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewKey(Key):
    """An API key that was just made."""

    #: The key itself, shown this one time.
    key: str = field(repr=False)


@dataclass(frozen=True)
class AuditRecord:
    """Who did what."""

    time: datetime
    #: Such as ``create``, ``exec``, ``file_read``, ``key_revoke``.
    action: str
    owner: str
    key_id: str
    #: Id of the sandbox it was about.
    sandbox: str
    #: ``ok``, or the code of the error.
    result: str
    request_id: str
    details: dict[str, Any]


@dataclass(frozen=True)
class Version:
    """Versions of the server."""

    #: Of the product.
    version: str
    #: Of the API.
    api: str
