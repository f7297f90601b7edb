"""What belongs to an owner beside sandboxes: volumes, images, secrets, keys."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence

from agentbox._async.files import GZIP, TAR, archive_headers, upload, whole_archive
from agentbox._async.http import AsyncHTTP
from agentbox._local import Progress, Source
from agentbox._wire import PAGE, Request, Size, get, given, key_of, path_of, post
from agentbox.models import Image, Key, NewKey, Secret, Volume


class AsyncVolumes:
    """Files that outlive sandboxes."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(self, name: str, *, size: Size | None = None, idempotency_key: str | None = None) -> Volume:
        """Makes a volume. One sandbox has it to write, or any number to read."""
        request = post("/volumes", given(name=name, size=size), key=key_of(idempotency_key), patience=None)
        return await self._http.record(Volume, request)

    async def get(self, name: str) -> Volume:
        """Looks at a volume."""
        return await self._http.record(Volume, get(path_of("volumes", name)))

    async def list(self) -> AsyncIterator[Volume]:
        """Your volumes, by name."""
        async for volume in self._http.records(Volume, "/volumes", PAGE):
            yield volume

    async def remove(self, name: str) -> None:
        """Removes a volume with all that is in it. One that a sandbox has is a :class:`~agentbox.Conflict`."""
        await self._http.call(Request("DELETE", path_of("volumes", name), patience=None))

    async def read_archive(self, name: str, *, gzip: bool = False, progress: Progress | None = None) -> AsyncIterator[bytes]:
        """A volume as a tar, or a tar.gz, in pieces."""
        request = Request("GET", path_of("volumes", name, "archive"), headers=archive_headers(gzip), repeatable=True, patience=None)
        async for piece in whole_archive(self._http.download(request, progress), gzip):
            yield piece

    async def write_archive(
        self, name: str, archive: Source | AsyncIterable[bytes], *, gzip: bool = False, progress: Progress | None = None
    ) -> None:
        """Unpacks a tar, or a tar.gz, into a volume that no sandbox has. What is there stays unless the archive has it."""
        await self._http.call(upload(path_of("volumes", name, "archive"), {}, GZIP if gzip else TAR, archive, progress))


class AsyncImages:
    """Images that sandboxes are made of."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def list(self) -> AsyncIterator[Image]:
        """All images, by name."""
        async for image in self._http.records(Image, "/images", PAGE):
            yield image

    async def get(self, ref: str) -> Image:
        """Looks at an image."""
        return await self._http.record(Image, get(path_of("images", ref)))

    async def pull(self, reference: str, *, platform: str | None = None, idempotency_key: str | None = None) -> Image:
        """Fetches an image, ``[REGISTRY/]REPOSITORY[:TAG][@DIGEST]``, and waits until it is there. Needs an admin's key."""
        body = given(reference=reference, platform=platform)
        return await self._http.record(Image, post("/images/pull", body, key=key_of(idempotency_key), patience=None))

    async def remove(self, ref: str) -> None:
        """Removes an image that no sandbox uses. Needs an admin's key."""
        await self._http.call(Request("DELETE", path_of("images", ref), patience=None))


class AsyncSecrets:
    """Secrets that sandboxes use and never see."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def set(
        self, name: str, value: str, *, hosts: Sequence[str], header: str | None = None, format: str | None = None
    ) -> Secret:
        """Keeps a secret, or gives it another value; see ``secrets`` of :meth:`AsyncClient.create`.

        ``hosts`` may have it, in the header ``header`` (default: Authorization), which
        becomes ``format`` with ``{}`` where the value goes.
        """
        body = given(name=name, value=value, hosts=hosts, header=header, format=format)
        return await self._http.record(Secret, post("/secrets", body))

    async def list(self) -> AsyncIterator[Secret]:
        """Your secrets, by name, without their values."""
        async for secret in self._http.records(Secret, "/secrets", PAGE):
            yield secret

    async def remove(self, name: str) -> None:
        """Removes a secret. From the next request on it is put in nowhere."""
        await self._http.call(Request("DELETE", path_of("secrets", name)))


class AsyncKeys:
    """API keys. All of it needs an admin's key."""

    def __init__(self, http: AsyncHTTP) -> None:
        self._http = http

    async def create(
        self, *, owner: str | None = None, name: str | None = None, admin: bool = False, idempotency_key: str | None = None
    ) -> NewKey:
        """Makes a key, which is shown this one time.

        With an ``idempotency_key`` the same request again is a :class:`~agentbox.Conflict`,
        which names the key that was made, also when its answer was lost.
        """
        body = given(owner=owner, name=name, admin=admin or None)
        return await self._http.record(NewKey, post("/keys", body, key=idempotency_key))

    async def list(self) -> AsyncIterator[Key]:
        """All keys, oldest first."""
        async for key in self._http.records(Key, "/keys", PAGE):
            yield key

    async def revoke(self, id: str) -> None:
        """From the next request on the key lets nobody in, and what is open by it ends."""
        await self._http.call(Request("DELETE", path_of("keys", id)))
