package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

var portCases = []guestCase{
	{"ListPorts", testListPorts},
	{"DialPort", testDialPort},
	{"HalfClose", testHalfClose},
	{"BackPressure", testBackPressure},
	{"Refused", testRefused},
	{"ConnectionLimit", testConnLimit},
	{"ServerDies", testServerDies},
	{"ClientsLeave", testClientsLeave},
}

// echoServer is a Python program that sends back what it is sent, to many at
// once, each until its end. Its argument is the port.
const echoServer = `
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while (b := self.request.recv(65536)): self.request.sendall(b)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 200
Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
`

// echo starts a server on a port of the sandbox and waits until it listens.
func (g *guest) echo(port int) *client.Process {
	g.Helper()
	script := fmt.Sprintf("exec python3 -c '%s' %d", echoServer, port)
	if g.f.EchoServer != "" {
		script = fmt.Sprintf("exec %s %d", g.f.EchoServer, port)
	}
	p := g.background(script)
	g.eventually("the server listens", func() bool { return g.port(port) != nil })
	return p
}

// port finds a port in the list, nil if nobody listens.
func (g *guest) port(port int) *client.Port {
	g.Helper()
	list, _, err := g.s.ListPorts(g.ctx)
	g.ok(err)
	for _, p := range list {
		if int(p.Addr.Port()) == port {
			return &p
		}
	}
	return nil
}

// dial connects to a port on which something listens.
func (g *guest) dial(port int) *client.Conn {
	g.Helper()
	c, err := g.s.DialPort(g.ctx, port)
	g.ok(err)
	g.Cleanup(func() { _ = c.Close() })
	// Nothing here may wait for ever.
	g.ok(c.SetDeadline(time.Now().Add(testTime)))
	return c
}

func testListPorts(g *guest) {
	if p := g.port(8001); p != nil {
		g.Fatalf("before a server is there: %+v", p)
	}
	server := g.echo(8001)
	p := g.port(8001)
	if p == nil || p.Addr.String() != "127.0.0.1:8001" || p.UID != 1000 || p.Pid == 0 || p.Process == "" {
		g.Errorf("got %+v", p)
	}
	g.ok(server.Kill(g.ctx))
	g.eventually("a port whose server died is off the list", func() bool { return g.port(8001) == nil })
}

func testDialPort(g *guest) {
	g.echo(8002)
	c := g.dial(8002)
	for _, s := range []string{"hello", strings.Repeat(notUTF8, 50_000)} {
		_, err := io.WriteString(c, s)
		g.ok(err)
		got := make([]byte, len(s))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != s {
			g.Errorf("got %.100q, %v", got, err)
		}
	}
	// A deadline ends one read, not the connection.
	g.ok(c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		g.Errorf("read %d bytes of nothing", n)
	}
	g.ok(c.SetReadDeadline(time.Now().Add(testTime)))
	_, err := io.WriteString(c, "again")
	g.ok(err)
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "again" {
		g.Errorf("after a deadline: %q, %v", got, err)
	}
}

func testHalfClose(g *guest) {
	g.echo(8003)
	c := g.dial(8003)
	_, err := io.WriteString(c, "the end")
	g.ok(err)
	g.ok(c.CloseWrite())
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "the end" {
		g.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Write([]byte("x")); err == nil {
		g.Error("more was written after the end")
	}
}

// testBackPressure writes to a server whose answers nobody reads.
func testBackPressure(g *guest) {
	g.echo(8004)
	c := g.dial(8004)
	const size = 32 << 20 // more than all buffers on the way
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	g.ok(c.SetWriteDeadline(time.Now().Add(2 * time.Second)))
	n, err := c.Write(data)
	if err == nil {
		g.Fatalf("all %d bytes were taken and nobody read them", n)
	}
	if _, err := g.s.Ping(g.ctx); err != nil {
		g.Errorf("while a connection is stalled: %v", err)
	}
	// Another connection is not held up, and one that is read gets through.
	d := g.dial(8004)
	go func() {
		_, _ = d.Write(data)
		_ = d.CloseWrite()
	}()
	got, err := io.ReadAll(d)
	if err != nil || !bytes.Equal(got, data) {
		g.Errorf("got %d bytes of %d, %v", len(got), size, err)
	}
}

func testRefused(g *guest) {
	start := time.Now()
	_, err := g.s.DialPort(g.ctx, 8005)
	if !errdefs.IsUnavailable(err) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "8005") {
		g.Errorf("got %v", err)
	}
	g.within(start, 0)
	for _, port := range []int{0, -1, 65536} {
		_, err := g.s.DialPort(g.ctx, port)
		g.want(fmt.Sprint("port ", port), err, errdefs.IsInvalidArgument)
	}
	ctx, cancel := context.WithCancel(g.ctx)
	cancel()
	if _, err := g.s.DialPort(ctx, 8005); !canceled(err) {
		g.Errorf("a canceled call: %v", err)
	}
}

func testConnLimit(g *guest) {
	g.echo(8006)
	var open []*client.Conn
	var err error
	for range 400 {
		var c *client.Conn
		if c, err = g.s.DialPort(g.ctx, 8006); err != nil {
			break
		}
		open = append(open, c)
	}
	g.want("one connection too many", err, errdefs.IsResourceExhausted)
	if len(open) < 100 {
		g.Errorf("only %d connections are possible", len(open))
	}
	for _, c := range open {
		g.ok(c.Close())
	}
	g.eventually("places are free again", func() bool {
		c, err := g.s.DialPort(g.ctx, 8006)
		if err != nil {
			return false
		}
		g.ok(c.Close())
		return true
	})
}

func testServerDies(g *guest) {
	server := g.echo(8007)
	c := g.dial(8007)
	_, err := io.WriteString(c, "x")
	g.ok(err)
	_, err = io.ReadFull(c, make([]byte, 1))
	g.ok(err)
	g.ok(server.Kill(g.ctx))
	if n, err := c.Read(make([]byte, 1)); err == nil {
		g.Errorf("read %d bytes from a dead server", n)
	}
}

// testClientsLeave drops connections while the server sends: neither the
// session nor later clients suffer.
func testClientsLeave(g *guest) {
	g.echo(8008)
	data := make([]byte, 1<<20)
	for range 300 {
		c, err := g.s.DialPort(g.ctx, 8008)
		if errdefs.IsResourceExhausted(err) {
			continue // the guest has not yet noticed that those before are gone
		}
		g.ok(err)
		g.ok(c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)))
		_, _ = c.Write(data)
		g.ok(c.Close())
	}
	g.eventually("a client is served", func() bool {
		c, err := g.s.DialPort(g.ctx, 8008)
		if err != nil {
			return false
		}
		_, err = io.WriteString(c, "x")
		g.ok(err)
		_, err = io.ReadFull(c, make([]byte, 1))
		g.ok(c.Close())
		return err == nil
	})
}
