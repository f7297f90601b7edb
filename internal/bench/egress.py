# Runs in a sandbox: what the proxy costs, beside the sandbox's own loopback.
# Arguments: the addresses of the proxy and, outside, of a web server, of one with TLS
# that is intercepted and of a server of bytes; how many requests, how many bytes, how
# many connections. Prints JSON.
import json, os, signal, socket, ssl, subprocess, sys, time

def address(text):
    host, port = text.split(":")
    return host, int(port)

proxy, web, secure, source = map(address, sys.argv[1:5])
requests, size, conns = map(int, sys.argv[5:])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

def connect(at):
    c = socket.create_connection(at, 120)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return c

def tunnel(to):
    c = connect(proxy)
    c.sendall(b"CONNECT %s:%d HTTP/1.1\r\n\r\n" % (to[0].encode(), to[1]))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = c.recv(1)
        if not part:
            raise SystemExit("no tunnel: %r" % head)
        head += part
    if b" 200 " not in head:
        raise SystemExit("no tunnel: %r" % head)
    return c

def intercepted():
    return ssl.create_default_context().wrap_socket(tunnel(secure), server_hostname=secure[0])

# own is a server on the loopback: a request gets an answer, one for /bytes and a zero
# byte get the bytes.
def own():
    l = socket.socket()
    l.bind(("127.0.0.1", 0))
    l.listen(16)
    if pid := os.fork():
        return pid, l.getsockname()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        c, _ = l.accept()
        if os.fork():
            c.close()
            continue
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := c.recv(65536):
            if data.startswith(b"GET /bytes "):
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            elif data != b"\0":
                c.sendall(OK)
                continue
            block = bytes(1 << 20)
            for _ in range(size // len(block)):
                c.sendall(block)
        os._exit(0)

def ask(c, host=web, target=""):
    c.sendall(b"GET %s/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (target.encode(), host[0].encode(), host[1]))
    data = b""
    while not data.endswith(b"\r\n\r\nok"):
        part = c.recv(65536)
        if not part:
            raise SystemExit("no answer: %r" % data)
        data += part

def latency(at):
    ways = {
        "own": (connect(at),), "http": (connect(proxy), web, "http://%s:%d" % web), "tunnel": (tunnel(web),),
        "intercepted": (intercepted(), secure),
    }
    out = {name: [] for name in ways}
    for i in range(requests + 20):
        for name, way in ways.items():
            began = time.perf_counter()
            ask(*way)
            if i >= 20:
                out[name].append((time.perf_counter() - began) * 1000)
    return out

def download(c):
    buf, left = bytearray(1 << 20), size
    c.sendall(b"\0")
    began = time.perf_counter()
    while left > 0:
        n = c.recv_into(buf)
        if not n:
            raise SystemExit("%d bytes are missing" % left)
        left -= n
    c.close()
    return size / 1e6 / (time.perf_counter() - began)

# curl downloads what a web server has, as people do.
def curl(at, *way):
    text = subprocess.run(["curl", "-sS", *way, "-o", "/dev/null", "-w", "%{size_download} %{time_total}", "http://%s:%d/bytes" % at], check=True, stdout=subprocess.PIPE).stdout
    got, took = map(float, text.split())
    if got != size:
        raise SystemExit("%d bytes are missing" % (size - got))
    return size / 1e6 / took

def many():
    began = time.perf_counter()
    all = [tunnel(web) for _ in range(conns)]
    for c in all:
        ask(c)
    return [(time.perf_counter() - began) * 1000]

pid, at = own()
out = latency(at)
out["own_rate"], out["rate"], out["own_curl"], out["curl"] = [], [], [], []
for _ in range(3):
    out["own_curl"].append(curl(at, "--noproxy", "*"))
    out["curl"].append(curl(web, "--noproxy", "", "--proxy", "http://%s:%d" % proxy))
    out["own_rate"].append(download(connect(at)))
    out["rate"].append(download(tunnel(source)))
out["many"] = many()
os.kill(pid, 9)
print(json.dumps(out))
