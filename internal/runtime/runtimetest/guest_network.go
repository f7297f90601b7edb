package runtimetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/sandbox"
)

// networkCases need programs that use a network.
var networkCases = []guestCase{
	{"Environment", testProxyEnvironment},
	{"Programs", testProxyPrograms},
	{"ManyAtOnce", testTunnelManyAtOnce},
	{"Large", testTunnelLarge},
	{"Stalled", testTunnelStalled},
	{"Resolver", testResolver},
	{"ResolverLeavesPorts", testResolverLeavesPorts},
	{"ResolvConf", testResolvConf},
	{"OwnPortsAreHidden", testOwnPorts},
}

func testProxyEnvironment(g *guest) {
	const show = "env | sort | grep -i -e proxy -e java_tool"
	if r := g.do(sandbox.Command{Shell: show}); len(r.Stdout) > 0 {
		g.Errorf("without a network there is %s", r.Stdout)
	}
	g.network(echoBack, withNetwork)
	got := g.sh(show)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if !strings.Contains("\n"+got, "\n"+name+"=http://127.0.0.1:3128\n") {
			g.Errorf("no %s in %s", name, got)
		}
	}
	for _, part := range []string{"\nNO_PROXY=localhost,", "\nno_proxy=localhost,", "-Dhttps.proxyPort=3128"} {
		if !strings.Contains("\n"+got, part) {
			g.Errorf("no %s in %s", part, got)
		}
	}
	// What a command is given counts, in either spelling, and so does what a
	// sandbox is given.
	r := g.do(sandbox.Command{Shell: show, Env: []string{"https_proxy=http://mine", "NO_PROXY=x", "JAVA_TOOL_OPTIONS=-Dmine"}})
	for _, part := range []string{"\nhttps_proxy=http://mine\n", "\nNO_PROXY=x\n", "\nJAVA_TOOL_OPTIONS=-Dmine\n", "\nhttp_proxy=http://127.0.0.1:3128\n"} {
		if !strings.Contains("\n"+string(r.Stdout), part) {
			g.Errorf("no %q in %s", part, r.Stdout)
		}
	}
	for _, part := range []string{"\nHTTPS_PROXY=", "\nno_proxy="} {
		if strings.Contains("\n"+string(r.Stdout), part) {
			g.Errorf("%s is beside the other spelling: %s", part, r.Stdout)
		}
	}
	g.network(echoBack, func(c *guestv1.GuestConfig) {
		withNetwork(c)
		c.Env = [][]byte{[]byte("HTTP_PROXY=")}
	})
	if got := g.sh(show); strings.Contains(strings.ToLower(got), "\nhttp_proxy=h") {
		g.Errorf("the sandbox's own: %s", got)
	}
}

// testProxyPrograms: programs find the proxy by their environment alone.
func testProxyPrograms(g *guest) {
	asked := make(chan string, 100)
	g.network(toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		answerRequests.proxy(ctx, tap{c, func(b []byte) { line, _, _ := strings.Cut(string(b), " HTTP/1."); asked <- line }})
	}}, withNetwork)
	for _, c := range []struct{ script, want string }{
		{"curl -s http://a.example/x", "GET http://a.example/x"},
		{"curl -s https://a.example/x || true", "CONNECT a.example:443"},
		{`python3 -c 'import urllib.request as r; print(r.urlopen("http://a.example/y").read())'`, "GET http://a.example/y"},
		{"pip download --retries 0 --index-url https://index.example/simple some-package || true", "CONNECT index.example:443"},
		{"git ls-remote https://git.example/r.git || true", "CONNECT git.example:443"},
	} {
		g.sh(c.script)
		select {
		case got := <-asked:
			if got != c.want {
				g.Errorf("%s asked for %q, not %q", c.script, got, c.want)
			}
		default:
			g.Errorf("%s asked for nothing", c.script)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
	for _, scheme := range []string{"http", "https"} {
		g.do(sandbox.Command{User: "root", Shell: fmt.Sprintf(
			`mkdir -p /tmp/l; echo 'deb [trusted=yes] %s://deb.example/debian x main' > /tmp/l/s; apt-get -o Dir::Etc::sourcelist=/tmp/l/s -o Dir::Etc::sourceparts=- -o Acquire::Retries=0 update`, scheme)})
		want := map[string]string{"http": "GET http://deb.example/debian/dists/x/InRelease", "https": "CONNECT deb.example:443"}[scheme]
		select {
		case got := <-asked:
			if got != want {
				g.Errorf("apt over %s asked for %q, not %q", scheme, got, want)
			}
		default:
			g.Errorf("apt over %s asked for nothing", scheme)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}

// tap tells of each piece that is read.
type tap struct {
	net.Conn
	tell func([]byte)
}

func (t tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if n > 0 {
		t.tell(b[:n])
	}
	return n, err
}

func testTunnelManyAtOnce(g *guest) {
	g.network(echoBack, withNetwork)
	got := g.sh(`python3 -c '
import socket
open = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(200)]
for i, s in enumerate(open): s.sendall(b"%08d" % i)
bad = [(i, b) for i, s in enumerate(open) if (b := s.recv(8, socket.MSG_WAITALL)) != b"%08d" % i]
print(bad or "all")
'`)
	if got != "all\n" {
		g.Errorf("got %.1000s", got)
	}
	// One too many is told so; when they are gone there is room again.
	got = g.sh(`python3 -c '
import socket
open, told = [], b""
for _ in range(300):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"x")
    b = s.recv(1)
    if b != b"x":
        told = b + s.recv(1000)
        break
    open.append(s)
print(len(open), told)
for s in open: s.close()
'`)
	if !strings.HasPrefix(got, "224 b'HTTP/1.1 503") {
		g.Errorf("got %s", got)
	}
	g.eventually("there is room again", func() bool { return string(g.feed(g.netcat(), "after").Stdout) == "after" })
}

// agentMemory is the resident memory of the agent in bytes, as the sandbox's
// kernel has it.
func (g *guest) agentMemory() int64 {
	g.Helper()
	r := g.do(sandbox.Command{User: "root", Shell: "grep VmRSS /proc/1/status"})
	f := strings.Fields(string(r.Stdout))
	if len(f) < 2 {
		g.Fatalf("got %+v", r)
	}
	n, err := strconv.ParseInt(f[1], 10, 64)
	g.ok(err)
	return n << 10
}

// testTunnelLarge moves 100 MB each way.
func testTunnelLarge(g *guest) {
	const size = 100 << 20
	sum := make(chan string, 1)
	g.network(toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		h := sha256.New()
		_, _ = io.Copy(h, c)
		sum <- fmt.Sprintf("%x", h.Sum(nil))
		b := make([]byte, 1<<20)
		for i := range size / len(b) {
			for j := range b {
				b[j] = byte(i)
			}
			_, _ = c.Write(b)
		}
		_ = c.(halfCloser).CloseWrite()
	}}, withNetwork)
	before := g.agentMemory()
	start := time.Now()
	got := g.sh(fmt.Sprintf(`python3 -c '
import hashlib, socket
s = socket.create_connection(("127.0.0.1", 3128))
h = hashlib.sha256()
for i in range(%[1]d):
    b = bytes([i %% 251]) * (1 << 20)
    h.update(b)
    s.sendall(b)
s.shutdown(socket.SHUT_WR)
n, ok = 0, True
while (b := s.recv(1 << 20)):
    ok = ok and b[0] == (n >> 20) %% 256 and b[-1] == ((n + len(b) - 1) >> 20) %% 256
    n += len(b)
print(h.hexdigest(), n, ok)
'`, size>>20))
	took := time.Since(start)
	after := g.agentMemory()
	if want := fmt.Sprintf("%s %d True\n", <-sum, size); got != want {
		g.Errorf("got %s, want %s", got, want)
	}
	g.Logf("2 × %d MiB in %v; the agent has %d KiB, before %d KiB", size>>20, took, after>>10, before>>10)
	if grown := after - before; grown > 32<<20 {
		g.Errorf("the agent grew by %d bytes", grown)
	}
}

// testTunnelStalled has programs write to who reads nothing: they wait, nobody
// else does, and the agent's memory stays small.
func testTunnelStalled(g *guest) {
	g.network(toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil && b[0] == 's' {
			<-ctx.Done()
			return
		}
		_, _ = c.Write(b)
	}}, withNetwork)
	before := g.agentMemory()
	p := g.background(`python3 -c '
import socket, time
open = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(50)]
for s in open: s.settimeout(1)
n = 0
for s in open:
    try:
        n += s.send(b"s" * 1000000)
        n += s.send(b"s" * 10000000)
    except TimeoutError: pass
print("stalled", n, flush=True)
time.sleep(1000)
'`)
	g.see(p.ID(), "stalled")
	if r := g.feed(g.netcat(), "x"); string(r.Stdout) != "x" {
		g.Errorf("beside them: %+v", r)
	}
	after := g.agentMemory()
	g.Logf("with 50 stalled connections the agent has %d KiB, before %d KiB", after>>10, before>>10)
	if after-before > 50*(256<<10) {
		g.Errorf("the agent grew by %d bytes", after-before)
	}
	g.ok(p.Kill(g.ctx))
}

var nameTunnel = toyTunnel{
	connect: func(c net.Conn, name string, port uint16) {
		fmt.Fprintf(c, "%s %d\n", name, port)
		_ = c.(halfCloser).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	},
	names: func(name string) bool { return strings.HasSuffix(name, ".allowed.example") },
}

func testResolver(g *guest) {
	g.network(nameTunnel, withResolver)
	got := g.sh(`python3 -c '
import socket
a = [socket.getaddrinfo(n, 443, type=socket.SOCK_STREAM) for n in ("a.allowed.example", "b.allowed.example", "A.Allowed.Example")]
print([[x[4] for x in l] for l in a])
for host in ("a.allowed.example", "b.allowed.example"):
    for port in (80, 443):
        s = socket.create_connection((host, port))
        print(s.makefile().read(), end="")
for name in ("evil.example", "allowed.example"):
    try: print(socket.getaddrinfo(name, 443))
    except socket.gaierror as e: print(e.errno == socket.EAI_NONAME)
print(socket.getaddrinfo("localhost", 1, socket.AF_INET)[0][4])
'`)
	want := `[[('127.64.0.1', 443)], [('127.64.0.2', 443)], [('127.64.0.1', 443)]]
a.allowed.example 80
a.allowed.example 443
b.allowed.example 80
b.allowed.example 443
True
True
('127.0.0.1', 1)
`
	if got != want {
		g.Errorf("got %s", got)
	}
	// Whoever takes no proxy is served in curl's way, too.
	if got := g.sh(`curl -s --noproxy '*' --http0.9 http://b.allowed.example/`); got != "b.allowed.example 80\n" {
		g.Errorf("got %q", got)
	}
	if r := g.do(sandbox.Command{Shell: `curl -s --noproxy '*' http://evil.example/`}); r.ShellCode() != 6 { // could not resolve host
		g.Errorf("got %+v", r)
	}
}

// testResolverLeavesPorts: a server can have the ports of names, whichever comes
// first, as long as it sets SO_REUSEADDR.
func testResolverLeavesPorts(g *guest) {
	g.network(nameTunnel, func(c *guestv1.GuestConfig) {
		c.Network = &guestv1.Network{Resolver: true, Ports: []uint32{7001, 7002}}
	})
	got := g.sh(`python3 -c '
import socket
def listen(port, reuse=True):
    s = socket.socket()
    if reuse: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", port))
    s.listen()
    return s
def name(host, port): return socket.create_connection((host, port)).makefile().read().strip()
def mine(s, port):
    c = socket.create_connection(("127.0.0.1", port))
    s.settimeout(10)
    s.accept()
listen(7001, reuse=False).close() # before any name was asked for
s = listen(7001)
print(name("p.allowed.example", 7001), name("p.allowed.example", 7002))
mine(s, 7001)
s = listen(7002)
mine(s, 7002)
print(name("p.allowed.example", 7002), name("q.allowed.example", 7002))
'`)
	if want := "p.allowed.example 7001 p.allowed.example 7002\np.allowed.example 7002 q.allowed.example 7002\n"; got != want {
		g.Errorf("got %s", got)
	}
}

// testResolvConf: the file is there while the resolver is, and a user's own stays.
func testResolvConf(g *guest) {
	read := func() string { return g.sh("cat /etc/resolv.conf") }
	g.network(nameTunnel, withResolver)
	if got := read(); !strings.HasSuffix(got, "\nnameserver 127.0.0.53\n") {
		g.Errorf("got %q", got)
	}
	g.network(nameTunnel, withNetwork)
	if got := read(); got != "" {
		g.Errorf("without the resolver: %q", got)
	}
	const own = "nameserver 127.0.0.1\n"
	r := g.do(sandbox.Command{User: "root", Shell: "printf '" + own + "' > /etc/resolv.conf"})
	if r.ShellCode() != 0 {
		g.Fatalf("got %+v", r)
	}
	g.network(nameTunnel, withResolver)
	if got := read(); got != own {
		g.Errorf("a user's own became %q", got)
	}
	g.connect()
	if got := read(); got != own {
		g.Errorf("a user's own became %q", got)
	}
	g.do(sandbox.Command{User: "root", Shell: ": > /etc/resolv.conf"})
}

func testOwnPorts(g *guest) {
	g.network(nameTunnel, withResolver)
	g.sh("getent hosts a.allowed.example")
	g.echo(8009)
	list, _, err := g.s.ListPorts(g.ctx)
	g.ok(err)
	if len(list) != 1 || list[0].Addr.Port() != 8009 {
		g.Errorf("listed are %v", list)
	}
}
