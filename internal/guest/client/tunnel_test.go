package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/client"
)

const proxyAt = "127.0.0.1:3128"

var networkOn = &guestv1.GuestConfig{Network: &guestv1.Network{}}

func TestTunnel(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	data := bytes.Repeat([]byte("0123456789abcdef"), 32<<20/16) // more than all buffers on the way
	c := l.dial(t, "tcp", proxyAt)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
}

// A program that waits for the other end's bytes after its own is served, and one
// whose other end is gone is told so.
func TestTunnelHalfClose(t *testing.T) {
	got := make(chan string, 1)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
		_, _ = io.WriteString(c, "answer")
		_ = c.(*guest.TunnelConn).CloseWrite()
	}})
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "question")
	_ = c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if q := <-got; err != nil || string(b) != "answer" || q != "question" {
		t.Errorf("%q was answered with %q, %v", q, b, err)
	}
}

// The other end goes while the program still sends, after what it had to say.
func TestTunnelHostEndsFirst(t *testing.T) {
	answer := strings.Repeat("x", 200<<10)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, answer)
		_ = c.(*guest.TunnelConn).CloseWrite()
	}})
	c := l.dial(t, "tcp", proxyAt)
	if b, err := io.ReadAll(c); err != nil || string(b) != answer {
		t.Errorf("got %d bytes of %d, %v", len(b), len(answer), err)
	}
	for { // until the kernel says that nobody is there
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

func TestTunnelReset(t *testing.T) {
	ended := make(chan error, 1)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		if b[0] == 'h' { // the host resets
			return
		}
		// The program does, while this end waits for room to write.
		var err error
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
		<-ctx.Done()
		ended <- err
	}})
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "h")
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset by the host: read %d, %v", n, err)
	}
	c = l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "p")
	_, _ = io.ReadFull(c, make([]byte, 1<<10))
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; !errors.Is(err, guest.ErrReset) {
		t.Errorf("reset by the program: the host got %v", err)
	}
}

// Without a host a program is told so at once; with the next one it goes on. What
// was open before is reset.
func TestTunnelSessions(t *testing.T) {
	l, g, s := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	ping := func() {
		t.Helper()
		c := l.dial(t, "tcp", proxyAt)
		_, _ = io.WriteString(c, "x")
		if b := make([]byte, 1); func() error { _, err := io.ReadFull(c, b); return err }() != nil || b[0] != 'x' {
			t.Errorf("got %q", b)
		}
		c.Close()
	}
	open := func() net.Conn {
		c := l.dial(t, "tcp", proxyAt)
		_, _ = io.WriteString(c, "x")
		_, _ = io.ReadFull(c, make([]byte, 1))
		return c
	}
	reset := func(c net.Conn) {
		t.Helper()
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection of the session before: read %d, %v", n, err)
		}
	}
	old := open()
	s2 := g.tunnel(networkOn, toyTunnel{proxy: echo}) // takes over
	reset(old)
	ping()
	_ = s.Close()
	old = open()
	_ = s2.Close()
	reset(old)
	r, err := http.ReadResponse(bufio.NewReader(l.dial(t, "tcp", proxyAt)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "no daemon") || err != nil {
		t.Errorf("without a host: %s: %q, %v", r.Status, b, err)
	}
	// A host that has no tunnel is none.
	g.connect(networkOn, nil)
	if b, _ := io.ReadAll(l.dial(t, "tcp", proxyAt)); !strings.Contains(string(b), "503") {
		t.Errorf("got %q", b)
	}
	g.tunnel(networkOn, toyTunnel{proxy: echo})
	ping()
	// The network can be taken away.
	old = open()
	g.tunnel(&guestv1.GuestConfig{}, toyTunnel{proxy: echo})
	reset(old)
	if c, err := l.try("tcp", proxyAt); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a network: %v, %v", c, err)
	}
}

func TestTunnelManyAtOnce(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	var open []net.Conn
	for i := range 200 {
		c := l.dial(t, "tcp", proxyAt)
		open = append(open, c)
		fmt.Fprintf(c, "%08d", i)
	}
	for i, c := range open {
		b := make([]byte, 8)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != fmt.Sprintf("%08d", i) {
			t.Fatalf("connection %d: got %q, %v", i, b, err)
		}
	}
	// There is a bound, and who meets it is told.
	refused := ""
	for range guest.MaxTunnelConns {
		c := l.dial(t, "tcp", proxyAt)
		open = append(open, c)
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != 'x' {
			rest, _ := io.ReadAll(c)
			refused = string(b) + string(rest)
			break
		}
	}
	if !strings.Contains(refused, "503") || !strings.Contains(refused, "224") {
		t.Errorf("after %d connections one was told %q", len(open), refused)
	}
	for _, c := range open {
		c.Close()
	}
	for { // the test's own time limit ends this
		c, err := l.try("tcp", proxyAt)
		if err != nil {
			continue // of many that are refused, most are just ended
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		_, err = io.ReadFull(c, b)
		c.Close()
		if err == nil && b[0] == 'x' {
			return
		}
	}
}

// Connections that nobody reads hold up no other, and who serves them late costs
// no place of others for ever.
func TestTunnelStalled(t *testing.T) {
	release := make(chan struct{})
	l, _, s := newNetwork(t, networkOn, toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		if b[0] == 's' {
			<-release // whatever the context says
			return
		}
		_, _ = c.Write(b)
	}})
	defer close(release)
	var stalled sync.WaitGroup
	defer stalled.Wait()
	for range 20 {
		c := l.dial(t, "tcp", proxyAt)
		stalled.Go(func() {
			data := append([]byte("s"), make([]byte, 8<<20)...)
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if n, err := c.Write(data); err == nil {
				t.Errorf("all %d bytes were taken and nobody read them", n)
			}
			c.Close()
		})
	}
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("beside them: %v", err)
	}
	if _, err := s.Ping(ctx(t)); err != nil {
		t.Errorf("beside them: %v", err)
	}
}

// An agent without a network, as one that is older than tunnels, says that it has
// none.
func TestTunnelOfOlderAgent(t *testing.T) {
	g := newGuest(t)
	s := g.connect(nil, nil)
	if err := s.ServeTunnel(ctx(t), toyTunnel{}); !errdefs.IsNotImplemented(err) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Ping(ctx(t)); err != nil {
		t.Errorf("the session goes on: %v", err)
	}
	g.epoch++
	if s, err := g.dial(client.Options{SandboxID: "test", Epoch: g.epoch, Tunnel: toyTunnel{}}, true); !errdefs.IsNotImplemented(err) {
		t.Errorf("got %v, %v", s, err)
	}
}
