package ports_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"8000":                "127.0.0.1:8000:8000",
		"8080:80":             "127.0.0.1:8080:80",
		"0:80":                "127.0.0.1:0:80",
		":80":                 "127.0.0.1:0:80",
		"127.0.0.2:8080:80":   "127.0.0.2:8080:80",
		"127.0.0.1::80":       "127.0.0.1:0:80",
		"0.0.0.0:8080:80":     "0.0.0.0:8080:80",
		"[::1]:8080:80":       "[::1]:8080:80",
		"[::]:0:65535":        "[::]:0:65535",
		"192.168.1.7:1025:22": "192.168.1.7:1025:22",
		"8080:80/tcp":         "127.0.0.1:8080:80",
	} {
		m, err := ports.Parse(in)
		if err != nil || m.String() != want {
			t.Errorf("%s: got %v, %v, want %s", in, m, err, want)
		}
	}
	for _, in := range []string{
		"", ":", "x", "0", "-1", "+80", "65536", "8080:", "8080:0", "x:80", "99999:80", "1:2:3:4", "::1:8080:80", "[::1]:80",
		"[::1:8080:80", "[127.0.0.1]:8080:80", "[fe80::1%lo]:8080:80", "localhost:8080:80", "/tcp", "80/tcp/tcp", "8080/tcp:80", "8000-8010:8000-8010", " 80", "8_0",
	} {
		_, err := ports.Parse(in)
		var bad *sandbox.InvalidError
		if !errors.As(err, &bad) || bad.Field != "publish" || !strings.Contains(err.Error(), "[HOST_IP:][HOST:]GUEST") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestParseUDP(t *testing.T) {
	for _, in := range []string{"53/udp", "5353:53/UDP", "80/sctp"} {
		if _, err := ports.Parse(in); err == nil || !strings.Contains(err.Error(), in+`": allowed is TCP only`) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"8000", "8080:80", "[::1]:8080:80", "127.0.0.1::80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ports.Parse(s)
		if err != nil {
			return
		}
		again, err := ports.Parse(m.String())
		if err != nil || again != m {
			t.Errorf("%q is %v, which is %v, %v", s, m, again, err)
		}
	})
}

func TestParseRange(t *testing.T) {
	if r, err := ports.ParseRange("2000-2100"); err != nil || r != (ports.Range{First: 2000, Last: 2100}) {
		t.Errorf("got %v, %v", r, err)
	}
	for _, s := range []string{"", "2000", "2100-2000", "0-10", "a-b", "1-70000", "1-2-3"} {
		if _, err := ports.ParseRange(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

// server stands for one in a sandbox.
func server(t *testing.T, handle func(*net.TCPConn)) ports.Dialer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return func(ctx context.Context, port int) (ports.Conn, error) {
		if port != 80 {
			return nil, syscall.ECONNREFUSED
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func open(t *testing.T, guest uint16, dial ports.Dialer) *ports.Forward {
	t.Helper()
	f, err := ports.Open(ports.Mapping{Host: netip.AddrPortFrom(ports.Loopback, 0), Guest: guest}, ports.DefaultRange)
	if err != nil {
		t.Fatal(err)
	}
	f.Serve(dial)
	t.Cleanup(func() { f.Close() })
	return f
}

func connect(t *testing.T, f *ports.Forward) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", f.Host.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

func TestForward(t *testing.T) {
	f := open(t, 80, server(t, echo))
	if !f.Host.Addr().IsLoopback() || f.Host.Port() < 1024 {
		t.Errorf("it listens on %v", f.Host)
	}
	c := connect(t, f)
	want := strings.Repeat("0123456789", 1<<17)
	go func() {
		_, _ = io.WriteString(c, want)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// Where nothing listens inside, a client is not left to wait.
func TestRefused(t *testing.T) {
	f := open(t, 81, server(t, echo))
	c, err := net.Dial("tcp", f.Host.String())
	if err != nil {
		return // reset before Dial returned
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes from nobody, %v", n, err)
	}
}

func TestClash(t *testing.T) {
	f := open(t, 80, server(t, echo))
	_, err := ports.Open(ports.Mapping{Host: f.Host, Guest: 80}, ports.DefaultRange)
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), fmt.Sprint(f.Host.Port())) || !strings.Contains(err.Error(), "0:80") {
		t.Errorf("got %v", err)
	}
}

func TestRange(t *testing.T) {
	var bad *sandbox.InvalidError
	_, err := ports.Open(ports.Mapping{Host: netip.AddrPortFrom(ports.Loopback, 443), Guest: 80}, ports.DefaultRange)
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "1024-65535") {
		t.Errorf("got %v", err)
	}
	few := ports.Range{First: 21000, Last: 21999}
	f, err := ports.Open(ports.Mapping{Host: netip.AddrPortFrom(ports.Loopback, 0), Guest: 80}, few)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p := f.Host.Port(); p < few.First || p > few.Last {
		t.Errorf("port %d was taken, out of %v", p, few)
	}
}

// Close ends connections that do nothing, at either end.
func TestClose(t *testing.T) {
	f := open(t, 80, server(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) }))
	var all []*net.TCPConn
	for range 5 {
		all = append(all, connect(t, f))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range all {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection outlived its mapping")
		}
	}
	if _, err := net.Dial("tcp", f.Host.String()); err == nil {
		t.Error("it still listens")
	}
}

// Clients that connect and say nothing keep no one out for longer than they
// stay.
func TestIdleClients(t *testing.T) {
	f := open(t, 80, server(t, echo))
	var idle []*net.TCPConn
	for range 100 {
		idle = append(idle, connect(t, f))
	}
	for _, c := range idle {
		c.Close()
	}
	c := connect(t, f)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// 200 connections work at once, each to its own end, and so does a sandbox that
// has no place for some of them for a while.
func TestManyAtOnce(t *testing.T) {
	const many = 200
	inner, places, refused := server(t, echo), make(chan struct{}, many), make(chan struct{}, 1)
	for range many - 5 {
		places <- struct{}{}
	}
	f := open(t, 80, func(ctx context.Context, port int) (ports.Conn, error) {
		select {
		case <-places:
			return inner(ctx, port)
		default:
			select {
			case refused <- struct{}{}:
			default:
			}
			return nil, errdefs.ErrResourceExhausted
		}
	})
	var all []*net.TCPConn
	for range many {
		all = append(all, connect(t, f))
	}
	for i, c := range all {
		_, _ = fmt.Fprintf(c, "%03d", i)
	}
	answered := func(i int) bool {
		got := make([]byte, 3)
		_, err := io.ReadFull(all[i], got)
		return err == nil && string(got) == fmt.Sprintf("%03d", i)
	}
	<-refused
	for range 5 {
		places <- struct{}{}
	}
	for i := range all {
		if !answered(i) {
			t.Errorf("connection %d was not answered", i)
		}
	}
}

// The server may end its direction first, too.
func TestServerHalfCloses(t *testing.T) {
	got := make(chan string, 1)
	f := open(t, 80, server(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "greeting")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	}))
	c := connect(t, f)
	if b, err := io.ReadAll(c); err != nil || string(b) != "greeting" {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := io.WriteString(c, "reply"); err != nil {
		t.Error(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if b := <-got; b != "reply" {
		t.Errorf("the server read %q", b)
	}
}

// A server that breaks off is no end of file for the client.
func TestReset(t *testing.T) {
	f := open(t, 80, server(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	}))
	c := connect(t, f)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}
