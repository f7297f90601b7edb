# Made from _async/manage.py by tools/unasync.py: change that one.
"""What belongs to an owner beside sandboxes: volumes, images, secrets, keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentbox._sync.files import GZIP, TAR, archive_headers, upload, whole_archive
from agentbox._sync.http import HTTP
from agentbox._local import Progress, Source
from agentbox._wire import PAGE, Request, Size, get, given, key_of, path_of, post
from agentbox.models import Image, Key, NewKey, Secret, Volume


class Volumes:
    """Files that outlive sandboxes."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def create(self, name: str, *, size: Size | None = None, idempotency_key: str | None = None) -> Volume:
        """Makes a volume. One sandbox has it to write, or any number to read."""
        request = post("/volumes", given(name=name, size=size), key=key_of(idempotency_key), patience=None)
        return self._http.record(Volume, request)

    def get(self, name: str) -> Volume:
        """Looks at a volume."""
        return self._http.record(Volume, get(path_of("volumes", name)))

    def list(self) -> Iterator[Volume]:
        """Your volumes, by name."""
        for volume in self._http.records(Volume, "/volumes", PAGE):
            yield volume

    def remove(self, name: str) -> None:
        """Removes a volume with all that is in it. One that a sandbox has is a :class:`~agentbox.Conflict`."""
        self._http.call(Request("DELETE", path_of("volumes", name), patience=None))

    def read_archive(self, name: str, *, gzip: bool = False, progress: Progress | None = None) -> Iterator[bytes]:
        """A volume as a tar, or a tar.gz, in pieces."""
        request = Request("GET", path_of("volumes", name, "archive"), headers=archive_headers(gzip), repeatable=True, patience=None)
        for piece in whole_archive(self._http.download(request, progress), gzip):
            yield piece

    def write_archive(
        self, name: str, archive: Source | Iterable[bytes], *, gzip: bool = False, progress: Progress | None = None
    ) -> None:
        """Unpacks a tar, or a tar.gz, into a volume that no sandbox has. What is there stays unless the archive has it."""
        self._http.call(upload(path_of("volumes", name, "archive"), {}, GZIP if gzip else TAR, archive, progress))


class Images:
    """Images that sandboxes are made of."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def list(self) -> Iterator[Image]:
        """All images, by name."""
        for image in self._http.records(Image, "/images", PAGE):
            yield image

    def get(self, ref: str) -> Image:
        """Looks at an image."""
        return self._http.record(Image, get(path_of("images", ref)))

    def pull(self, reference: str, *, platform: str | None = None, idempotency_key: str | None = None) -> Image:
        """Fetches an image, ``[REGISTRY/]REPOSITORY[:TAG][@DIGEST]``, and waits until it is there. Needs an admin's key."""
        body = given(reference=reference, platform=platform)
        return self._http.record(Image, post("/images/pull", body, key=key_of(idempotency_key), patience=None))

    def remove(self, ref: str) -> None:
        """Removes an image that no sandbox uses. Needs an admin's key."""
        self._http.call(Request("DELETE", path_of("images", ref), patience=None))


class Secrets:
    """Secrets that sandboxes use and never see."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def set(
        self, name: str, value: str, *, hosts: Sequence[str], header: str | None = None, format: str | None = None
    ) -> Secret:
        """Keeps a secret, or gives it another value; see ``secrets`` of :meth:`Client.create`.

        ``hosts`` may have it, in the header ``header`` (default: Authorization), which
        becomes ``format`` with ``{}`` where the value goes.
        """
        body = given(name=name, value=value, hosts=hosts, header=header, format=format)
        return self._http.record(Secret, post("/secrets", body))

    def list(self) -> Iterator[Secret]:
        """Your secrets, by name, without their values."""
        for secret in self._http.records(Secret, "/secrets", PAGE):
            yield secret

    def remove(self, name: str) -> None:
        """Removes a secret. From the next request on it is put in nowhere."""
        self._http.call(Request("DELETE", path_of("secrets", name)))


class Keys:
    """API keys. All of it needs an admin's key."""

    def __init__(self, http: HTTP) -> None:
        self._http = http

    def create(
        self, *, owner: str | None = None, name: str | None = None, admin: bool = False, idempotency_key: str | None = None
    ) -> NewKey:
        """Makes a key, which is shown this one time.

        With an ``idempotency_key`` the same request again is a :class:`~agentbox.Conflict`,
        which names the key that was made, also when its answer was lost.
        """
        body = given(owner=owner, name=name, admin=admin or None)
        return self._http.record(NewKey, post("/keys", body, key=idempotency_key))

    def list(self) -> Iterator[Key]:
        """All keys, oldest first."""
        for key in self._http.records(Key, "/keys", PAGE):
            yield key

    def revoke(self, id: str) -> None:
        """From the next request on the key lets nobody in, and what is open by it ends."""
        self._http.call(Request("DELETE", path_of("keys", id)))
