package runtimetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

var tunnelCases = []guestCase{
	{"BothWays", testTunnelBothWays},
	{"NoDaemon", testTunnelNoDaemon},
	{"NoNetwork", testNoNetwork},
	{"AnotherSession", testTunnelAnotherSession},
}

// proxyPort is where programs in a sandbox find the proxy.
const proxyPort = 3128

// toyTunnel is a way to the outside that leads nowhere.
type toyTunnel struct {
	proxy   func(ctx context.Context, c net.Conn)
	connect func(c net.Conn, name string, port uint16)
	names   func(name string) bool
}

func (t toyTunnel) Proxy(ctx context.Context, c net.Conn) { t.proxy(ctx, c) }

func (t toyTunnel) Connect(_ context.Context, c net.Conn, name string, port uint16) {
	t.connect(c, name, port)
}

func (t toyTunnel) MayResolve(_ context.Context, name string) bool { return t.names(name) }

// halfCloser is what every connection of a tunnel can do.
type halfCloser interface{ CloseWrite() error }

// echoBack sends back what comes, to its end.
var echoBack = toyTunnel{proxy: func(_ context.Context, c net.Conn) {
	if _, err := io.Copy(c, struct{ io.Reader }{c}); err == nil {
		_ = c.(halfCloser).CloseWrite()
	}
}}

// answerRequests is a proxy that answers each request with its first line.
var answerRequests = toyTunnel{proxy: func(_ context.Context, c net.Conn) {
	r := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		text := fmt.Sprintf("asked: %s %s\n", q.Method, q.RequestURI)
		status := "403 Forbidden"
		if q.Method != http.MethodConnect {
			status = "200 OK"
		}
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
	}
}}

func withNetwork(c *guestv1.GuestConfig) { c.Network = &guestv1.Network{} }

func withResolver(c *guestv1.GuestConfig) { c.Network = &guestv1.Network{Resolver: true} }

// network begins a new session, in which the sandbox has a network.
func (g *guest) network(t client.Tunnel, change func(*guestv1.GuestConfig)) {
	g.Helper()
	g.epoch++
	s, err := openTunnel(g.ctx, g.rt, g.id, g.epoch, t, change)
	g.ok(err)
	g.Cleanup(func() { s.Close() })
	if e := s.Reply().GetError(); e != "" {
		g.Fatalf("the agent answers: %s", e)
	}
	g.s = s
}

// netcatProgram is what netcat(1) does with a port of the sandbox: it sends its
// input and prints what comes back.
const netcatProgram = `
import socket, sys, threading
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while (b := sys.stdin.buffer.read1(65536)): s.sendall(b)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while (b := s.recv(65536)):
    sys.stdout.buffer.write(b)
    sys.stdout.buffer.flush()
`

func (g *guest) netcat() sandbox.Command {
	c := sandbox.Command{Argv: []string{"python3", "-c", netcatProgram, itoa(proxyPort)}}
	if g.f.Netcat != "" {
		c.Argv = []string{g.f.Netcat, itoa(proxyPort)}
	}
	return c
}

func testTunnelBothWays(g *guest) {
	ended := make(chan string, 1)
	g.network(toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		b, err := io.ReadAll(c) // until the program has closed its direction
		ended <- fmt.Sprint(err)
		_, _ = c.Write(bytes.ToUpper(b))
		_ = c.(halfCloser).CloseWrite()
	}}, withNetwork)
	for _, s := range []string{"hello", strings.Repeat("many ", 200_000)} {
		r := g.feed(g.netcat(), s)
		if got := string(r.Stdout); got != strings.ToUpper(s) || r.ShellCode() != 0 {
			g.Errorf("%.20q came back as %.20q (%d bytes of %d), %v", s, got, len(got), len(s), r)
		}
		if end := <-ended; end != "<nil>" {
			g.Errorf("the program's end is %s", end)
		}
	}
}

func testTunnelNoDaemon(g *guest) {
	g.network(nil, withNetwork)
	r := g.feed(g.netcat(), "GET http://x/ HTTP/1.1\r\n\r\n")
	if got := string(r.Stdout); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "no daemon") {
		g.Errorf("got %q", got)
	}
}

func testNoNetwork(g *guest) {
	g.network(echoBack, withNetwork)
	g.connect()
	if r := g.feed(g.netcat(), "x"); r.ShellCode() == 0 || len(r.Stdout) > 0 {
		g.Errorf("without a network: %+v", r)
	}
}

// testTunnelAnotherSession: a restart of the host ends what was open; what comes
// after it works.
func testTunnelAnotherSession(g *guest) {
	for range 3 {
		g.network(echoBack, withNetwork)
		var out text
		c := g.netcat()
		c.Stdin, c.OnDisconnect = true, sandbox.Keep
		p, err := g.s.Start(g.ctx, ids.Hex(4), c, client.Output{Stdout: &out})
		g.ok(err)
		_, err = p.Stdin().Write([]byte("before"))
		g.ok(err)
		g.await(&out, "before")
		g.network(echoBack, withNetwork)
		q, err := g.s.Attach(g.ctx, p.ID(), 0, 0, client.Output{})
		g.ok(err)
		g.result(q) // it ends because its connection does
		if r := g.feed(g.netcat(), "after"); string(r.Stdout) != "after" {
			g.Errorf("got %+v", r)
		}
	}
}

// testSuspendTunnel: a restored sandbox has lost its connections and makes new
// ones.
func testSuspendTunnel(e *env) {
	sus, ok := runtime.As[runtime.Suspender](e.rt)
	if !ok || !e.rt.Capabilities().Suspend {
		e.Skipf("%s has no suspend", e.rt.Capabilities().Name)
	}
	g := e.guest()
	resolve := echoBack
	resolve.names = func(string) bool { return true }
	g.network(resolve, withResolver)
	p := g.background(`python3 -c '
import socket
socket.getaddrinfo("a.example", 443)
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"x")
s.recv(1)
print("open", flush=True)
try: print("got", s.recv(1), flush=True)
except ConnectionResetError: print("reset", flush=True)
'`)
	g.see(p.ID(), "open")
	image := e.imagesDir() + "/image"
	g.suspendTo(sus, image)
	g.id = e.newID()
	e.ok(sus.Resume(e.ctx, e.spec(g.id), image))
	g.network(resolve, withResolver)
	g.see(p.ID(), "reset")
	if r := g.feed(g.netcat(), "after"); string(r.Stdout) != "after" {
		g.Errorf("got %+v", r)
	}
	if got := g.sh(`python3 -c 'import socket; print(socket.getaddrinfo("a.example", 443)[0][4][0])'`); got != "127.64.0.1\n" {
		g.Errorf("a name leads to %q", got)
	}
}

// see waits until the output of a command has a text.
func (g *guest) see(exec, want string) {
	g.Helper()
	var out text
	p, err := g.s.Attach(g.ctx, exec, 0, 0, client.Output{Stdout: &out})
	g.ok(err)
	g.await(&out, want)
	g.ok(p.Detach())
	_, _ = p.Wait(g.ctx)
}
