package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// forward maps a free port of the host to one of a sandbox.
func forward(t *testing.T, box *Box, port uint16) *ports.Forward {
	t.Helper()
	f, err := ports.Open(ports.Mapping{Host: netip.AddrPortFrom(ports.Loopback, 0), Guest: port}, ports.DefaultRange)
	if err != nil {
		t.Fatal(err)
	}
	f.Serve(func(ctx context.Context, port int) (ports.Conn, error) { return box.Session().DialPort(ctx, port) })
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// serveInside starts a program in the sandbox that listens on a port.
func serveInside(t *testing.T, box *Box, port int, program string) {
	t.Helper()
	_, err := box.Start(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", program}, Background: true, Timeout: -1}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30*time.Second + Slack())
	for {
		list, _, err := box.Session().ListPorts(t.Context())
		for _, p := range list {
			if int(p.Addr.Port()) == port {
				if p.Process != "python3" || p.Pid == 0 || p.UID != 1000 {
					t.Errorf("listening: %+v", p)
				}
				return
			}
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("nobody listens on %d: %+v, %v", port, list, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const httpServer = `
import http.server, socketserver
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        b = self.path.encode() * 1000
        self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer): request_queue_size, daemon_threads = 200, True
S(("0.0.0.0", 8000), H).serve_forever()
`

// TestPortManyClients: 200 clients of a server in a sandbox keep their
// connections and are all answered, twice.
func TestPortManyClients(t *testing.T) {
	const many = 200
	box := NewBox(t, sandbox.Limits{})
	serveInside(t, box, 8000, httpServer)
	f := forward(t, box, 8000)
	transport := &http.Transport{MaxIdleConnsPerHost: many}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: time.Minute}
	for round := range 2 {
		var all sync.WaitGroup
		held := make(chan struct{})
		var arrived sync.WaitGroup
		arrived.Add(many)
		for i := range many {
			all.Go(func() {
				path := fmt.Sprintf("/%d", i)
				a, err := c.Get("http://" + f.Host.String() + path)
				arrived.Done()
				if err != nil {
					t.Errorf("round %d, client %d: %v", round, i, err)
					return
				}
				defer a.Body.Close()
				<-held // all are connected now
				if b, err := io.ReadAll(a.Body); err != nil || string(b) != strings.Repeat(path, 1000) {
					t.Errorf("round %d, client %d read %d bytes, %v", round, i, len(b), err)
				}
			})
		}
		arrived.Wait()
		close(held)
		all.Wait()
	}
}

// TestPortNobodyAccepts: a server that takes no connection holds up its own
// clients only, and they can leave.
func TestPortNobodyAccepts(t *testing.T) {
	box := NewBox(t, sandbox.Limits{})
	serveInside(t, box, 8001, `
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 8001)); s.listen(1)
time.sleep(1000)
`)
	serveInside(t, box, 8000, httpServer)
	stuck, good := forward(t, box, 8001), forward(t, box, 8000)
	var clients []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", stuck.Host.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "hello?")
		clients = append(clients, c)
	}
	began := time.Now()
	a, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + good.Host.String() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	box.Want("hi\n", "echo hi")
	Within(t, began, time.Second)
	began = time.Now()
	for _, c := range clients[:10] {
		c.Close()
	}
	if err := stuck.Close(); err != nil {
		t.Error(err)
	}
	Within(t, began, time.Second)
	for _, c := range clients[10:] {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes of nobody", n)
		}
	}
}

// TestPortFlood: clients that write to a server that reads nothing, and a server
// that writes to clients that read nothing, are held up. They take a bounded part
// of the sandbox's memory, which goes on.
func TestPortFlood(t *testing.T) {
	const many = 200
	box := NewBox(t, sandbox.Limits{})
	serveInside(t, box, 8000, `
import socket, threading
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen(300)
held, piece = [], bytes(1 << 20)
def serve(c):
    kind = c.recv(1)
    if kind == b"w":
        while True: c.send(piece)
    elif kind == b"e":
        while b := c.recv(1 << 20): c.sendall(b)
        c.close()
    else: held.append(c) # and read no more
threading.stack_size(1 << 18)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`)
	dial := func(kind string) *client.Conn {
		t.Helper()
		c, err := box.Session().DialPort(t.Context(), 8000)
		if err == nil {
			_, err = io.WriteString(c, kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, kind := range []string{"r", "w"} {
		var moved atomic.Int64
		var clients sync.WaitGroup
		var conns []*client.Conn
		for range many {
			c := dial(kind)
			conns = append(conns, c)
			if kind == "w" {
				continue
			}
			clients.Go(func() {
				piece := make([]byte, 64<<10)
				for {
					n, err := c.Write(piece)
					moved.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
		}
		settle(t, &moved)
		box.Want("alive\n", "echo alive")
		echo(t, dial("e"))
		for _, c := range conns {
			_ = c.Close()
		}
		clients.Wait()
		t.Logf("%s: %d MiB were written", kind, moved.Load()>>20)
	}
}

// echo sends some MiB to a server that sends them back.
func echo(t *testing.T, c *client.Conn) {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	const size = 32 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, newRandom(1, size))
		sent <- errors.Join(err, c.CloseWrite())
	}()
	h, began := sha256.New(), time.Now()
	n, err := io.Copy(h, c)
	if err = errors.Join(err, <-sent); err != nil || n != size || !bytes.Equal(h.Sum(nil), sumOf(1, size)) {
		t.Errorf("%d of %d bytes came back, %v", n, size, err)
	}
	t.Logf("%d MiB there and back took %v", size>>20, time.Since(began).Round(time.Millisecond))
}

// settle waits until a count stays the same for a while.
func settle(t *testing.T, count *atomic.Int64) {
	t.Helper()
	last, since := count.Load(), time.Now()
	for begun := time.Now(); time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		if now := count.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%d bytes, and no end", last)
		}
	}
}
