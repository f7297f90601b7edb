package egress_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"agentbox/internal/egress"
)

// stream is a connection as a multiplexer has them: a deadline is an error of its
// own, and to close it is a reset unless its direction was closed before.
type stream struct {
	net.Conn
	ended bool
}

type streamTimeout struct{}

func (streamTimeout) Error() string   { return "i/o deadline reached" }
func (streamTimeout) Timeout() bool   { return true }
func (streamTimeout) Temporary() bool { return false }

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		err = streamTimeout{}
	}
	return n, err
}

func (s *stream) CloseWrite() error {
	s.ended = true
	return s.Conn.(*net.TCPConn).CloseWrite()
}

func (s *stream) Close() error {
	if !s.ended {
		_ = s.Conn.(*net.TCPConn).SetLinger(0)
	}
	return s.Conn.Close()
}

// TestStreams: the flows over connections of a multiplexer, as sandboxes have
// them.
func TestStreams(t *testing.T) {
	l, ca := interceptingLab(t)
	l.serve(allowedAddr, 2222, echo)
	s := l.intercepted("allowed.test", "allowed.test:2222")
	p := l.proxy()
	d := &door{lab: l, s: s, p: p}
	d.addr = l.accept(func(ctx context.Context, c net.Conn) { p.ServeConn(ctx, &stream{Conn: c}, s) })
	for name, f := range map[string]flows{
		"http":        {c: d.client("http"), url: "http://allowed.test", size: 5 << 20},
		"intercepted": {c: d.clientWith("http", &tls.Config{RootCAs: ca.pool}), url: "https://allowed.test", size: 5 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			f.post(t)
			f.download(t)
			f.expectRefused(t)
			f.webSocket(t)
			f.bodiless(t)
		})
	}
	// Requests on one intercepted connection: looking for the client's end between
	// them must not break it.
	c := tls.Client(d.tunnel("allowed.test:443"), &tls.Config{ServerName: "allowed.test", RootCAs: ca.pool})
	web := connected(t, c)
	for i := range 3 {
		web.send("GET /hello HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
		if resp, body := web.answer("GET"); resp.StatusCode != 200 || body != "hello HTTP/1.1 allowed.test" {
			t.Fatalf("request %d: %s %q", i, resp.Status, body)
		}
	}
	tun := d.tunnel("allowed.test:2222")
	tun.send("ping")
	_ = tun.CloseWrite()
	if got, err := tun.rest(); got != "ping" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	l.timeout.Head = time.Second
	hasty := l.proxy()
	d.addr = l.accept(func(ctx context.Context, c net.Conn) { hasty.ServeConn(ctx, &stream{Conn: c}, s) })
	slow := d.dial()
	slow.send("GET ")
	if resp, _ := slow.answer("GET"); resp.StatusCode != 408 || resp.Header.Get(egress.CodeHeader) != string(egress.CodeTimeout) {
		t.Errorf("a slow head: %s", resp.Status)
	}
}
