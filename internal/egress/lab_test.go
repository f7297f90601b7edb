package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/egress"
	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

// Addresses of the lab. The dialler checks them as it always does; only then
// the lab leads it to a listener on loopback.
var (
	allowedAddr  = netip.MustParseAddr("198.51.100.10")
	evilAddr     = netip.MustParseAddr("198.51.100.66")
	metadataAddr = netip.MustParseAddr("169.254.169.254")
	internalAddr = netip.MustParseAddr("10.66.0.5")
)

// wait is how long a test waits for what must happen.
const wait = 30 * time.Second

// lab is a network in which nothing leaves the process: names, servers and what
// was asked and dialled.
type lab struct {
	t       testing.TB
	ca      *authority
	timeout egress.Timeouts
	options egress.Options

	mu      sync.Mutex
	names   map[string][]netip.Addr
	servers map[netip.AddrPort]string
	asked   []string
	dialled []netip.AddrPort
	records []egress.Record
	changed chan struct{} // closed at the next record
}

func newLab(t testing.TB) *lab {
	return &lab{
		timeout: egress.Timeouts{Continue: wait},
		t:       t, ca: newAuthority(t), changed: make(chan struct{}),
		names:   map[string][]netip.Addr{"allowed.test": {allowedAddr}, "evil.test": {evilAddr}},
		servers: map[netip.AddrPort]string{},
	}
}

func (l *lab) name(name string, addrs ...netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[name] = addrs
}

// Resolve is the lab's resolver.
func (l *lab) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, name)
	if addrs, ok := l.names[name]; ok {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (l *lab) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	l.mu.Lock()
	l.dialled = append(l.dialled, to)
	at, ok := l.servers[to]
	l.mu.Unlock()
	if !ok {
		at = "127.0.0.1:1" // nothing listens there
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

func (l *lab) Record(r egress.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	close(l.changed)
	l.changed = make(chan struct{})
}

// record waits for the n-th record, counted from 0.
func (l *lab) record(n int) egress.Record {
	l.t.Helper()
	deadline := time.After(wait)
	for {
		l.mu.Lock()
		all, changed := slices.Clone(l.records), l.changed
		l.mu.Unlock()
		if len(all) > n {
			return all[n]
		}
		select {
		case <-changed:
		case <-deadline:
			l.t.Fatalf("there are %d records, none of number %d: %+v", len(all), n, all)
		}
	}
}

// recordOf waits for the first record with a code. The client may know before it
// is written, so its place among others is not certain.
func (l *lab) recordOf(code egress.Code) egress.Record {
	l.t.Helper()
	for n := 0; ; n++ {
		if r := l.record(n); r.Code == code {
			return r
		}
	}
}

func (l *lab) recorded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records)
}

// reached reports whether an address was dialled.
func (l *lab) reached(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.dialled, func(to netip.AddrPort) bool { return to.Addr() == a })
}

// serve gives each connection to an address to a function.
func (l *lab) serve(addr netip.Addr, port uint16, handle func(net.Conn)) {
	ln := l.listen(addr, port)
	var tasks sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	tasks.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			tasks.Go(func() {
				handle(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	l.t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
}

func (l *lab) listen(addr netip.Addr, port uint16) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	l.servers[netip.AddrPortFrom(addr, port)] = ln.Addr().String()
	l.mu.Unlock()
	return ln
}

// web serves HTTP at an address; with names also TLS, with HTTP/2.
func (l *lab) web(addr netip.Addr, port uint16, h http.Handler, names ...string) {
	ln := l.listen(addr, port)
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	if len(names) > 0 {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*l.ca.leaf(names...)}, NextProtos: []string{"h2", "http/1.1"}}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(names) > 0 {
			_ = s.ServeTLS(ln, "", "")
		} else {
			_ = s.Serve(ln)
		}
	}()
	l.t.Cleanup(func() { s.Close(); <-done })
}

// session of a sandbox with an allow-list.
func (l *lab) session(allow ...string) *egress.Session {
	l.t.Helper()
	return l.sessionOf(egress.SessionOptions{Sandbox: "s1", Owner: "t1", Policy: l.policy(allow...)})
}

func (l *lab) sessionOf(o egress.SessionOptions) *egress.Session {
	s := egress.NewSession(o)
	l.t.Cleanup(s.Close)
	return s
}

func (l *lab) policy(allow ...string) *policy.Policy {
	l.t.Helper()
	p, err := policy.Compile(policy.Spec{Allow: allow})
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) proxy() *egress.Proxy {
	l.t.Helper()
	d, err := dial.New(dial.Options{
		Resolver: l, Connect: l.connect, Timeout: wait,
		Ranges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, // documentation: not public
	})
	if err != nil {
		l.t.Fatal(err)
	}
	o := l.options
	o.Dialer, o.Recorder, o.Timeouts, o.Roots = d, l, l.timeout, l.ca.pool
	return egress.New(o)
}

// door is where programs of a sandbox find the proxy.
type door struct {
	*lab
	s    *egress.Session
	p    *egress.Proxy
	addr string
}

// open serves a session at a door of its own.
func (l *lab) open(s *egress.Session) *door {
	d := &door{lab: l, s: s, p: l.proxy()}
	d.addr = l.accept(func(ctx context.Context, c net.Conn) { d.p.ServeConn(ctx, c, s) })
	return d
}

// accept listens, until the test ends.
func (l *lab) accept(serve func(context.Context, net.Conn)) string {
	l.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { serve(ctx, c) })
		}
	})
	l.t.Cleanup(func() {
		cancel()
		ln.Close()
		tasks.Wait()
	})
	return ln.Addr().String()
}

// dial connects to the door; the connection fails when it takes too long.
func (d *door) dial() *peer {
	d.t.Helper()
	return connectTo(d.t, d.addr)
}

func connectTo(t testing.TB, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(wait))
	t.Cleanup(func() { c.Close() })
	return connected(t, c)
}

func connected(t testing.TB, c net.Conn) *peer {
	return &peer{t: t, halfConn: c.(halfConn), r: bufio.NewReader(c)}
}

// client is an HTTP client that knows the proxy; close idle connections go with
// the test.
func (d *door) client(scheme string) *http.Client {
	return d.clientWith(scheme, &tls.Config{RootCAs: d.ca.pool})
}

func (d *door) clientWith(scheme string, c *tls.Config) *http.Client {
	t := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: scheme, Host: d.addr}),
		TLSClientConfig: c, ForceAttemptHTTP2: true, ExpectContinueTimeout: wait,
	}
	d.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 2 * wait}
}

// halfConn is a connection of TCP or TLS.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// peer is a raw connection of a client.
type peer struct {
	t testing.TB
	halfConn
	r *bufio.Reader
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads an answer with its body.
func (p *peer) answer(method string) (*http.Response, string) {
	p.t.Helper()
	resp, err := http.ReadResponse(p.r, &http.Request{Method: method})
	if err != nil {
		p.t.Fatalf("read an answer: %v", err)
	}
	if method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		return resp, ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatalf("read the body of %s: %v", resp.Status, err)
	}
	return resp, string(b)
}

// ask sends a request head and reads the answer.
func (p *peer) ask(head string) (*http.Response, string) {
	p.t.Helper()
	method, _, _ := strings.Cut(head, " ")
	p.send("%s", head)
	return p.answer(method)
}

// tunnel connects to a target through the proxy.
func (d *door) tunnel(target string) *peer {
	d.t.Helper()
	p := d.dial()
	if resp, body := p.ask("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"); resp.StatusCode != 200 {
		d.t.Fatalf("CONNECT %s: %s %q", target, resp.Status, body)
	}
	return p
}

// read reads n bytes.
func (p *peer) read(n int) string {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.r, b); err != nil {
		p.t.Fatalf("read %d bytes: %v", n, err)
	}
	return string(b)
}

// rest reads to the end, which may be a reset.
func (p *peer) rest() (string, error) {
	b, err := io.ReadAll(p.r)
	return string(b), err
}

// fullPolicy allows all that is public.
func fullPolicy() (*policy.Policy, error) { return policy.Compile(policy.Spec{Mode: policy.Full}) }
