package e2e

import (
	"context"
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
	box := NewBox(t, sandbox.Limits{Memory: 256 * sandbox.MiB})
	serveInside(t, box, 8000, `
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen(300)
held = []
while True: held.append(s.accept()[0])
`)
	piece := make([]byte, 64<<10)
	var written atomic.Int64
	var clients sync.WaitGroup
	for range many {
		c, err := box.Session().DialPort(t.Context(), 8000)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients.Go(func() {
			for {
				n, err := c.Write(piece)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	settle(t, &written)
	t.Logf("%d MiB were written", written.Load()>>20)
	box.Want("alive\n", "echo alive")
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
