"""Probes of the network, from inside a sandbox: a JSON list on standard input, a list of answers on standard output."""
import json, socket, struct, sys

PROXY = ("127.0.0.1", 3128)
TIMEOUT = 30


def proxy():
    s = socket.create_connection(PROXY, TIMEOUT)
    s.settimeout(TIMEOUT)
    return s


def answers(s):
    """The statuses and bodies of all answers until the connection ends."""
    f, found = s.makefile("rb"), []
    while True:
        line = f.readline()
        if not line:
            return found
        if not line.startswith(b"HTTP/"):
            continue
        status, size, code = int(line.split()[1]), 0, ""
        while True:
            h = f.readline().strip()
            if not h:
                break
            name, _, value = h.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
            if name.lower() == b"x-agentbox-egress":
                code = value.strip().decode()
        body = b"" if 100 <= status < 200 else f.read(size)
        found.append([status, code, body.decode("latin1")])


def raw(p):
    s = proxy()
    s.sendall(p["bytes"].encode("utf-8", "surrogateescape"))
    if p.get("half", True):
        s.shutdown(socket.SHUT_WR)
    return answers(s)


def http(method, form):
    def one(p):
        target = form % p["target"]
        got = raw({"bytes": "%s %s HTTP/1.1\r\nHost: x.test\r\nConnection: close\r\n\r\n" % (method, target)})
        return got[0] if got else [0, "closed", ""]
    return one


def socks(p):
    s = proxy()
    s.sendall(b"\5\1\0")
    if s.recv(2) != b"\5\0":
        return "refused"
    name = p["target"].encode("utf-8", "surrogateescape")
    s.sendall(b"\5\1\0\3" + bytes([len(name)]) + name + struct.pack(">H", p.get("port", 80)))
    reply = s.recv(10)
    return reply[1] if len(reply) > 1 else "closed"


def tcp(p):
    try:
        s = socket.create_connection((p["target"], p["port"]), 5)
    except OSError as e:
        return type(e).__name__
    s.close()
    return "connected"


def udp(p):
    family = socket.AF_INET6 if ":" in p["target"] else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(0.3)
    try:
        s.sendto(p.get("bytes", "x").encode("latin1"), (p["target"], p["port"]))
        s.recv(1)
    except OSError as e:
        return type(e).__name__
    return "answered"


def packet(p):
    """Any socket there is, with a packet that asks for an answer."""
    try:
        s = socket.socket(p["family"], p["type"], p["protocol"])
        s.settimeout(0.3)
        to = (p["target"], 0) if p["family"] != 17 else ("lo", 0x0800)
        s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", to)
        return "sent"
    except (OSError, OverflowError, TypeError) as e:
        return type(e).__name__


def lookup(p):
    try:
        return [a[4][0] for a in socket.getaddrinfo(p["target"], 80, type=socket.SOCK_STREAM)]
    except OSError as e:
        return type(e).__name__


DO = {"get": http("GET", "http://%s/"), "connect": http("CONNECT", "%s"), "raw": raw, "socks": socks, "tcp": tcp, "udp": udp, "packet": packet, "lookup": lookup}
out = []
for p in json.load(sys.stdin):
    try:
        out.append(DO[p["via"]](p))
    except Exception as e:  # the answer tells it
        out.append("%s: %s" % (type(e).__name__, e))
json.dump(out, sys.stdout)
