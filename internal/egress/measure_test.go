package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"agentbox/internal/egress/mint"
)

// TestJ10_BodiesAreStreamed: however much goes through, the memory does not grow
// with it.
func TestJ10_BodiesAreStreamed(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	l := newLab(t)
	// The server does not make the bytes: it is the proxy that is looked at.
	l.serve(allowedAddr, 80, func(c net.Conn) {
		readHead(c)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		b := make([]byte, 64<<10)
		for n := 0; n < size; n += len(b) {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	d := l.open(l.session("allowed.test"))
	for _, name := range []string{"absolute form", "tunnel"} {
		p, url := d.dial(), "http://allowed.test/"
		if name == "tunnel" {
			p, url = d.tunnel("allowed.test:80"), "/"
		}
		_ = p.SetDeadline(time.Time{}) // as long as it takes
		p.send("GET %s HTTP/1.1\r\nHost: allowed.test\r\n\r\n", url)
		resp, err := http.ReadResponse(p.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		first, err := io.CopyN(io.Discard, resp.Body, int64(size/2))
		runtime.GC()
		runtime.ReadMemStats(&during)
		rest, err2 := io.Copy(io.Discard, resp.Body)
		if first+rest != int64(size) || err != nil || err2 != nil {
			t.Fatalf("%s: %d and %d bytes, %v, %v", name, first, rest, err, err2)
		}
		t.Logf("%s: %.0f MB/s", name, float64(size)/1e6/time.Since(began).Seconds())
		if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("%s: the heap grew by %d bytes", name, grown)
		}
	}
}

// TestStuckClient: what a client does not read stays with the server.
func TestStuckClient(t *testing.T) {
	l := newLab(t)
	sent := make(chan int, 100_000)
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Write(b)
			if err != nil {
				close(sent)
				return
			}
			sent <- n
		}
	})
	s := l.session("allowed.test:2222")
	l.open(s).tunnel("allowed.test:2222")
	total, still := 0, time.NewTimer(time.Second)
	for done := false; !done; {
		select {
		case n := <-sent:
			total += n
			still.Reset(time.Second)
		case <-still.C:
			done = true
		}
	}
	// Buffers of two TCP connections, and the proxy's own.
	if total > 64<<20 {
		t.Errorf("%d bytes went out", total)
	}
	s.Close()
	for range sent {
	}
}

// TestMemoryOfConnections prints what an open tunnel costs, and bounds it.
func TestMemoryOfConnections(t *testing.T) {
	const conns = 200
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	d := l.open(l.session("allowed.test:2222"))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range conns {
		p := d.tunnel("allowed.test:2222")
		p.send("ping")
		p.read(4)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / conns
	t.Logf("%d KiB for each of %d tunnels, with both ends of the test", each>>10, conns)
	if each > 256<<10 {
		t.Errorf("a tunnel costs %d bytes", each)
	}
}

// addAuthority adds a sandbox's to those that a client trusts.
func addAuthority(t *testing.T, to *x509.CertPool, m *mint.Mint, sandbox string) {
	t.Helper()
	der, err := m.Authority(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	to.AddCert(cert)
}

// TestMeasure prints what the proxy adds.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("figures only")
	}
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.web(allowedAddr, 443, ok("allowed"), "allowed.test", "direct.test")
	l.name("direct.test", allowedAddr)
	l.serve(allowedAddr, 2222, echo)
	m := mint.New(make([]byte, 32))
	l.options.Intercept = m
	d := l.open(l.intercepted("allowed.test", "direct.test", "allowed.test:2222"))
	roots := l.ca.pool.Clone()
	addAuthority(t, roots, m, "s1")
	trusting := func() *http.Client { return d.clientWith("http", &tls.Config{RootCAs: roots}) }
	direct := &http.Client{}
	defer direct.CloseIdleConnections()
	l.mu.Lock()
	server := l.servers[netip.AddrPortFrom(allowedAddr, 80)]
	l.mu.Unlock()
	for _, c := range []struct {
		name   string
		client *http.Client
		url    string
	}{
		{"direct", direct, "http://" + server}, {"through the proxy", d.client("http"), "http://allowed.test/"},
		{"TLS through the proxy", trusting(), "https://direct.test/"}, {"intercepted", trusting(), "https://allowed.test/"},
	} {
		const n = 500
		var took [2][]time.Duration // on a connection that is open, and on a new one
		for i := range 2 * n {
			if i >= n {
				c.client.CloseIdleConnections()
			}
			began := time.Now()
			get(t, c.client, c.url)
			took[i/n] = append(took[i/n], time.Since(began))
		}
		for i, on := range []string{"an open", "a new"} {
			slices.Sort(took[i])
			t.Logf("a request on %s connection, %s: p50 %v, p95 %v", on, c.name, took[i][n/2], took[i][n*95/100])
		}
	}
	began := time.Now()
	const tunnels = 200
	for range tunnels {
		p := d.tunnel("allowed.test:2222")
		p.Close()
	}
	t.Logf("a tunnel opened: %v each", time.Since(began)/tunnels)
}
