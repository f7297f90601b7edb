"""Sandboxes, and what belongs to an owner, on a real server."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

import agentbox


def test_life(client: agentbox.Client, name: str) -> None:
    with client.create(
        name=name, labels={"of": name}, memory="200m", cpus=0.5, pids=100, env={"A": "b"}, workdir="/tmp", user="root",
        idle_timeout=timedelta(minutes=5), lifetime=7200, on_idle="stop", network=[],
    ) as box:  # fmt: skip
        i = box.info
        assert (i.name, i.labels, i.limits.memory, i.limits.cpus, i.limits.pids) == (name, {"of": name}, 200 << 20, 0.5, 100)
        assert (i.user, i.workdir, i.idle_timeout, i.on_idle, i.network.mode, i.status) == ("root", "/tmp", 300, "stop", "none", "running")
        assert len(box.id) == 64 and box.short_id == box.id[:12] and box.label and name in repr(box)
        assert i.created_at.tzinfo is not None and i.expires_at is not None
        assert box.exec("echo $A $PWD; id -un").stdout == "b /tmp\nroot\n"
        for form in (box.id, box.short_id, box.label, name):
            assert client.get(form).id == box.id
        assert [b.id for b in client.list(labels={"of": name})] == [box.id] == [b.id for b in client.list(name=name, status=["running", "stopped"])]
        assert [b.id for b in client.list(labels={"of": "nobody"})] == []
        with pytest.raises(agentbox.AlreadyExists):
            client.create(name=name)
        box.update(labels={"of": None, "x": "y"}, memory="256m", idle_timeout=60)
        assert box.info.labels == {"x": "y"} and box.info.limits.memory == 256 << 20 and box.info.idle_timeout == 60
        box.files.write("/root/kept", "kept")
        assert box.stop().status == "stopped"
        with pytest.raises(agentbox.NotRunning):
            box.exec("true")
        assert box.start().status == "running" and box.files.read_text("/root/kept") == "kept"
        assert [e.type for e in box.events()].count("state") >= 3
        follow = box.follow_events()
        assert next(follow).seq < next(follow).seq
        assert box.stats().processes > 0 and next(box.follow_stats()).memory >= 0
        assert box.isolation().backend == "gvisor"
    with pytest.raises(agentbox.SandboxGone) as gone:
        box.refresh()
    assert gone.value.reason == "destroyed"
    box.destroy()  # again is no error


def test_keep(client: agentbox.Client) -> None:
    with client.create(memory="160m", keep=True) as box:
        pass
    with client.get(box.id) as again:
        assert again.exec("echo still").stdout == "still\n"
    again.keep = False
    with again:
        pass
    with pytest.raises(agentbox.SandboxGone):
        client.get(box.id)


def test_pages(client: agentbox.Client, name: str) -> None:
    boxes = [client.create(memory="160m", labels={"page": name}) for _ in range(3)]
    try:
        assert [b.id for b in client.list(labels={"page": name}, page_size=2)] == [b.id for b in boxes]
    finally:
        for box in boxes:
            box.destroy()


def test_same_request_makes_one(client: agentbox.Client, name: str) -> None:
    first = client.create(memory="160m", idempotency_key=name)
    with first:
        assert client.create(memory="160m", idempotency_key=name).id == first.id
        with pytest.raises(agentbox.Conflict):
            client.create(memory="170m", idempotency_key=name)
        ran = [first.exec("echo x >>n; wc -l <n", idempotency_key=name + str(i // 2)) for i in range(4)]
        assert [r.stdout for r in ran] == ["1\n", "1\n", "2\n", "2\n"]


@pytest.mark.parametrize("network", [None, [], {}, {"allow": []}, "none", {"mode": "none"}, {"mode": "allowlist"}])
def test_net18_nothing_is_no_network(client: agentbox.Client, network: object) -> None:
    """Nothing, an empty list and no mode lead nowhere, or are refused."""
    try:
        box = client.create(memory="160m", network=network)  # type: ignore[arg-type]
    except agentbox.InvalidArgument:
        return
    with box:
        assert box.info.network.mode != "full" and not box.info.network.allow
        assert box.exec("python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\"").exit_code != 0
        assert box.network.get().mode == box.info.network.mode


@pytest.mark.parametrize("network", [[""], [None], ["not a host"], "some", {"mode": "none", "allow": ["a.example"]}, {"hosts": []}])
def test_net18_no_host_is_refused(client: agentbox.Client, network: object) -> None:
    with pytest.raises(agentbox.InvalidArgument):
        client.create(memory="160m", network=network).destroy()  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["localhost", "none"])
def test_net18_names_of_the_host_lead_nowhere(client: agentbox.Client, host: str) -> None:
    port = os.environ["AGENTBOX_URL"].rpartition(":")[2]
    try:
        box = client.create(memory="160m", network=[f"{host}:{port}", host])
    except agentbox.InvalidArgument:
        return
    with box:
        r = box.exec(f"curl -sS --max-time 20 --noproxy '' http://{host}:{port}/health")
        assert r.exit_code != 0 or "denied" in r.stdout.lower() or "not " in r.stdout.lower()
        assert '"status"' not in r.stdout


def test_network(client: agentbox.Client) -> None:
    with client.create(memory="160m", network=["a.example"]) as box:
        assert box.info.network.mode == "allowlist" and box.info.network.allow == ["a.example"]
        assert box.network.change(add=["b.example"], remove=["a.example"]).allow == ["b.example"]
        box.exec("curl -sS http://c.example/")
        state = box.network.get()
        assert [r.host for r in state.requests] == ["c.example"]
        assert "c.example" in [r.host for r in client.network_requests()]
        assert "c.example:80" in client.decide(box.id, state.requests[0].id, "allow").allow
        assert [(r.host, r.verdict) for r in box.network.log()] == [("c.example", "denied")]
        assert box.network.set("full", cut=True).mode == "full"
        assert box.network.set({"mode": "allowlist", "allow": ["d.example"], "resolver": False}).resolver is False
        assert box.network.set([]).mode == "none"
    with client.create(memory="160m", network_enabled=True) as box:
        assert box.info.network.mode != "none"


def test_volumes(client: agentbox.Client, name: str) -> None:
    client.volumes.create(name, size="32m")
    try:
        with client.create(memory="160m", volumes=[f"{name}:/data"]) as box:
            box.exec("echo kept >/data/f")
            assert box.info.volumes == [agentbox.Mount(name, "/data")]
            assert client.volumes.get(name).used_by == [box.id]
            with pytest.raises(agentbox.Conflict):
                client.volumes.remove(name)
        with client.create(memory="160m", volumes=[agentbox.Mount(name, "/data", read_only=True)]) as box:
            assert box.exec("cat /data/f; touch /data/g").stdout == "kept\n" and not box.files.exists("/data/g")
        archive = b"".join(client.volumes.read_archive(name, gzip=True))
        client.volumes.create(name + "2", size="32m")
        client.volumes.write_archive(name + "2", archive, gzip=True)
        with client.create(memory="160m", volumes=[f"{name}2:/data:ro"]) as box:
            assert box.files.read_text("/data/f") == "kept\n"
        assert {name, name + "2"} <= {v.name for v in client.volumes.list()}
    finally:
        client.volumes.remove(name)
    client.volumes.remove(name + "2")
    with pytest.raises(agentbox.NotFound):
        client.volumes.get(name)
    for bad in ("x", "x:", ":/x", "x:/y:z"):
        with pytest.raises(agentbox.InvalidArgument):
            client.create(volumes=[bad])


def test_secrets(client: agentbox.Client, name: str) -> None:
    name = name.replace("-", "_").upper()
    made = client.secrets.set(name, "a value that is secret", hosts=["api.example.com"], format="Bearer {}")
    assert (made.name, made.hosts, made.header) == (name, ["api.example.com"], "Authorization")
    with client.create(memory="160m", secrets=[name], network=["api.example.com"]) as box:
        assert box.info.secrets == [name]
        assert "a value" not in box.exec(["printenv", name]).stdout
    assert name in [s.name for s in client.secrets.list()]
    client.secrets.remove(name)
    with pytest.raises(agentbox.NotFound):
        client.secrets.remove(name)


def test_keys(client: agentbox.Client, name: str) -> None:
    key = client.keys.create(owner=name, name="ci")
    assert key.key not in repr(key)
    with agentbox.Client(api_key=key.key) as other:
        assert list(other.list()) == []
        with pytest.raises(agentbox.PermissionDenied):
            list(other.keys.list())
    client.keys.revoke(key.id)
    assert next(k for k in client.keys.list() if k.id == key.id).revoked_at is not None
    with agentbox.Client(api_key=key.key) as other, pytest.raises(agentbox.Unauthenticated):
        list(other.list())


def test_keys_are_not_shown(client: agentbox.Client) -> None:
    c = agentbox.Client("http://127.0.0.1:9", "abx_secret")
    assert "abx_secret" not in repr(c) + repr(vars(c)) + repr(c._http.settings)
    from agentbox._wire import post

    assert "hidden" not in repr(post("/secrets", {"value": "hidden"}))


def test_service(client: agentbox.Client, box: agentbox.Box) -> None:
    assert client.version().api == "v1"
    small = next(i for i in client.images.list() if i.name == "small")
    assert client.images.get("small") == small
    with pytest.raises(agentbox.Conflict):
        client.images.remove("small")
    with pytest.raises(agentbox.AgentboxError):
        client.images.pull("127.0.0.1:9/none/none:1", idempotency_key="")
    box.exec("true")
    assert "exec" in [r.action for r in client.audit(sandbox=box.id, order="oldest")]
    with pytest.raises(agentbox.NotFound):
        client.images.get("host/none:1")


def test_socket(client: agentbox.Client) -> None:
    """The local socket asks its own user for no key."""
    path = os.environ.get("AGENTBOX_TEST_SOCKET")
    if not path:
        pytest.skip("AGENTBOX_TEST_SOCKET names no local socket")
    with agentbox.Client(f"unix://{path}", "") as c, c.create(memory="160m") as box:
        assert box.exec("echo hi").stdout == "hi\n"
        with box.terminal("echo tty") as t:
            assert b"".join(t) == b"tty\r\n"


def test_pip(client: agentbox.Client) -> None:
    with client.create(network=["python"]) as box:
        with pytest.raises(agentbox.InvalidArgument):
            box.packages.pip(["--index-url=http://x"])
        assert "at least one requirement" in box.packages.pip([]).output
    with client.create(memory="160m") as box, pytest.raises(agentbox.PermissionDenied):
        box.packages.pip("six")
