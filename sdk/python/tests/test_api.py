"""The client against the document of the API: all of it is there, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentbox
from agentbox import models
from agentbox._decode import decode, parse_time

from test_retry import SANDBOX

FILE = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"
if not FILE.exists():
    pytest.skip("docs/openapi.json is not here: this is no checkout", allow_module_level=True)
DOCUMENT = json.loads(FILE.read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]

#: Records that have another name in the document.
OTHER_NAMES = {"ConnectionRecord": "Connection"}
#: Fields that only some uses of a record have, or that say what its class does.
OTHER_FIELDS = {"Change": {"type"}}

RECORDS = [
    m
    for m in vars(models).values()
    if dataclasses.is_dataclass(m) and isinstance(m, type) and m not in (models.Output, models.Exit, models.ExecEnd, models.Change)
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_records(record: Any) -> None:
    """Each record has the fields that the document has, and needs those that are always there."""
    schema = SCHEMAS[OTHER_NAMES.get(record.__name__, record.__name__)]
    fields = {f.metadata.get("name", f.name): f for f in dataclasses.fields(record)}
    assert set(fields) == set(schema["properties"])
    for name, f in fields.items():
        if f.default is dataclasses.MISSING and name in schema["required"]:
            continue
        assert f.default is not dataclasses.MISSING, f"{name} need not be there"


class Notes(httpx.BaseTransport):
    """Notes the requests, and answers with a sandbox."""

    def __init__(self) -> None:
        self.got: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.got.append(request)
        return httpx.Response(200, json=SANDBOX)


def every(c: agentbox.Client, box: agentbox.Box) -> Iterable[Callable[[], object]]:
    """A call of each member, with all that it takes."""
    f, p = box.files, box.process("e1")
    yield lambda: c.create(
        image="i", name="n", labels={"a": "b"}, env={"a": "b"}, user="u", workdir="/w", memory="1g", cpus=1, disk=1, shm=1, pids=1, idle_timeout=1,
        lifetime=1, on_idle="stop", network={"mode": "allowlist", "allow": [], "intercept": [], "resolver": True}, network_enabled=True, ports=[1],
        volumes=["v:/v"], secrets=["S"], tenant_id="t", process_api=True,
    )  # fmt: skip
    yield lambda: c.get("s1")
    yield lambda: list(c.list(labels={"a": "b"}, status="running", name="n", page_size=2))
    yield lambda: c.version()
    yield lambda: list(c.audit(sandbox="s", action="exec", since="2026-01-01T00:00:00Z", order="newest", all=True))
    yield lambda: list(c.network_requests())
    yield lambda: c.decide("s1", "r1", "allow")
    yield lambda: c.volumes.create("v", size="1g")
    yield lambda: c.volumes.get("v1")
    yield lambda: list(c.volumes.list())
    yield lambda: c.volumes.remove("v1")
    yield lambda: list(c.volumes.read_archive("v1", gzip=True))
    yield lambda: c.volumes.write_archive("v1", b"x", gzip=True)
    yield lambda: list(c.images.list())
    yield lambda: c.images.get("host/i:1")
    yield lambda: c.images.pull("host/i:1", platform="linux/amd64")
    yield lambda: c.images.remove("host/i:1")
    yield lambda: c.secrets.set("S", "v", hosts=["h"], header="H", format="{}")
    yield lambda: list(c.secrets.list())
    yield lambda: c.secrets.remove("S1")
    yield lambda: c.keys.create(owner="o", name="n", admin=True, idempotency_key="k")
    yield lambda: list(c.keys.list())
    yield lambda: c.keys.revoke("k1")
    yield lambda: box.refresh()
    yield lambda: box.update(labels={"a": None}, memory=1, cpus=1, pids=1, shm=1, idle_timeout=1, lifetime=1)
    yield lambda: box.stop()
    yield lambda: box.start()
    yield lambda: box.destroy(remove_storage=True)
    run: dict[str, Any] = {"workdir": "/w", "env": {"a": "b"}, "user": "u", "timeout": 1, "max_output": 1, "on_disconnect": "keep"}
    yield lambda: box.exec("x", **run, stdin="x", session="s")
    yield lambda: box.exec(["x"], stdin=b"x")
    yield lambda: box.stream("x", **run, open_stdin=True, session="s", tty=True, cols=1, rows=2, detach=True)
    yield lambda: box.stream("x", stdin="x")
    yield lambda: box.stream("x", stdin=b"x")
    yield lambda: box.background("x", **run, open_stdin=True, tty=True, cols=1, rows=2)
    yield lambda: list(box.processes())
    yield lambda: p.info()
    yield lambda: p.wait(timeout=1)
    yield lambda: p.attach(stdout_offset=1, stderr_offset=2)
    yield lambda: list(p.output(stream="stdout", offset=1, follow=True))
    yield lambda: p.write(b"x")
    yield lambda: p.close_stdin()
    yield lambda: p.kill()
    yield lambda: p.resize(1, 2)
    yield lambda: box.ports()
    yield lambda: box.stats()
    yield lambda: list(box.follow_stats())
    yield lambda: list(box.events())
    yield lambda: list(box.follow_events(after=1))
    yield lambda: box.isolation()
    yield lambda: box.network.get()
    yield lambda: box.network.set(["h"], cut=True)
    yield lambda: box.network.set({"mode": "allowlist", "allow": [], "intercept": [], "resolver": True})
    yield lambda: box.network.change(add=["a"], remove=["b"], cut=True)
    yield lambda: list(box.network.log(since="2026-01-01T00:00:00Z", order="oldest"))
    yield lambda: box.packages.pip("x")
    yield lambda: box.packages.npm(["x"])
    yield lambda: box.packages.apt(["x"])
    yield lambda: box.sessions.create("n")
    yield lambda: list(box.sessions.list())
    yield lambda: box.sessions.remove("n1")
    yield lambda: f.read("p", offset=1, length=2, user="u")
    yield lambda: f.write("p", b"x", mode="644", append=True, owner="o", user="u")
    yield lambda: list(f.read_archive("p", gzip=True, exclude=["x"], user="u"))
    yield lambda: f.write_archive("p", b"x", gzip=True, user="u")
    yield lambda: list(f.list("p", depth=2, user="u"))
    yield lambda: f.stat("p", follow=True, user="u")
    yield lambda: f.remove("p", recursive=True, user="u")
    yield lambda: f.mkdir("p", mode="755", parents=False, owner="o", user="u")
    yield lambda: f.move("a", "b", overwrite=True, user="u")
    yield lambda: f.copy("a", "b", recursive=True, overwrite=True, user="u")
    yield lambda: f.chmod("p", "755", recursive=True, user="u")
    yield lambda: f.chown("p", "o", recursive=True, user="u")
    yield lambda: f.symlink("p", "t", overwrite=True, user="u")
    yield lambda: f.glob("*", path="p", exclude=["x"], limit=1, timeout=1, user="u")
    yield lambda: f.search(
        "x", path="p", literal=True, ignore_case=True, include=["a"], exclude=["b"], context=1, limit=1, limit_per_file=1, timeout=1, user="u"
    )
    yield lambda: list(f.watch("p", recursive=True, user="u"))


#: Operations that the client reaches in another way: HEAD is stat's, the multipart forms are those of write and
#: read, and the sockets have tests of their own.
ELSEWHERE = {"head-file", "upload-file", "download-file", "open-terminal", "connect-port"}
#: Parameters and fields that are left to their defaults on purpose.
UNUSED = {"if-range", "encoding", "content-encoding", "cursor", "limit", "disk"}


def properties(operation: Any) -> set[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return set(SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]["properties"]) if content else set()


def test_all_operations() -> None:
    operations = {
        (method.upper(), path): o for path, item in DOCUMENT["paths"].items() for method, o in item.items() if method != "parameters"
    }
    seen: dict[str, set[str]] = {}
    notes = Notes()
    client = agentbox.Client("http://server", "key", transport=notes)
    box = client.get("s")
    notes.got.clear()
    for call in every(client, box):
        before = len(notes.got)
        try:
            call()
        except (agentbox.AgentboxError, KeyError, TypeError, ValueError):
            pass  # the answer is not what it asked for
        assert len(notes.got) > before
    for request in notes.got:
        raw = request.url.raw_path.partition(b"?")[0].decode()
        found = [
            (path, o)
            for (method, path), o in operations.items()
            if method == request.method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), raw)
        ]
        # The longest is that without names in it, such as images/pull.
        assert found, f"{request.method} {raw} is not in the document"
        path, operation = min(found, key=lambda f: f[0].count("{"))
        parameters = {p["name"].lower(): p["in"] for p in operation.get("parameters", [])}
        used = seen.setdefault(operation["operationId"], set())
        for name in request.url.params:
            assert parameters.get(name) == "query", f"{operation['operationId']} has no parameter {name}"
            used.add(name)
        used |= {n for n, where in parameters.items() if where == "header" and n in request.headers}
        if request.headers.get("content-type") == "application/json":
            fields = set(json.loads(request.content))
            assert fields <= properties(operation)
            used |= fields
    assert set(seen) == {o["operationId"] for o in operations.values()} - ELSEWHERE
    for operation in operations.values():
        if operation["operationId"] not in ELSEWHERE:
            names = {p["name"].lower() for p in operation.get("parameters", []) if p["in"] != "path"} | properties(operation)
            assert names - seen[operation["operationId"]] <= UNUSED, operation["operationId"]


def test_decoding() -> None:
    box = decode(models.Sandbox, {**SANDBOX, "of_a_newer_server": 1, "status": "dreaming"})
    assert box.created_at.microsecond == 123456 and box.status == "dreaming"
    assert parse_time("2026-01-02T03:04:05Z") == parse_time("2026-01-02T04:04:05.000+01:00")
    for bad in ({**SANDBOX, "id": 5}, {k: v for k, v in SANDBOX.items() if k != "id"}, [], None, {**SANDBOX, "created_at": "soon"}):
        with pytest.raises(agentbox.ServerError):
            decode(models.Sandbox, bad)
