package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/client"
)

// hostileGuest takes the tunnels and does with one what it likes.
func hostileGuest(t *testing.T, tunnel client.Tunnel, attack func(*guest.Tunnel)) *client.Session {
	t.Helper()
	host, end := net.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		h, err := guest.ReadHello(end)
		if err != nil {
			return
		}
		_ = guest.WriteReply(end, &guestv1.HelloReply{Version: guest.Version, Epoch: h.GetEpoch()})
		mux, err := guest.NewMux(end, false)
		if err != nil {
			return
		}
		defer mux.Close()
		for {
			c, err := mux.Accept()
			if err != nil {
				return
			}
			done.Go(func() { takeTunnel(c, attack) })
		}
	})
	s, err := client.New(ctx(t), host, client.Options{SandboxID: "test", Tunnel: tunnel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		done.Wait()
	})
	return s
}

// takeTunnel answers the request for a tunnel and attacks it if it is not wide.
func takeTunnel(c net.Conn, attack func(*guest.Tunnel)) {
	r := bufio.NewReader(c)
	q, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	wide := q.URL.Path == guest.PathWideTunnel
	inside, err := guest.NewTunnel(c, r, false, wide)
	if err != nil {
		return
	}
	defer inside.Close()
	inside.Begin()
	if !wide {
		attack(inside)
	}
	<-inside.Done()
}

// Streams that are none of a tunnel's are reset and reach nobody; too many end the
// tunnel, and the session goes on.
func TestTunnelHostileGuest(t *testing.T) {
	attacked := make(chan struct{})
	s := hostileGuest(t, toyTunnel{names: func(string) bool { return false }}, func(inside *guest.Tunnel) { // other calls would be of nil functions
		defer close(attacked)
		for _, h := range []guest.TunnelHead{
			{Kind: 9}, {Kind: guest.TunnelConnect, Name: "a", Port: 0}, {Kind: guest.TunnelConnect, Name: "a/b", Port: 1}, {Kind: guest.TunnelName, Name: "A"},
			{Kind: guest.TunnelName, Name: strings.Repeat("a", 300)}, {Kind: guest.TunnelProxy, Name: "a"},
		} {
			c, err := inside.Open(h)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := c.Read(make([]byte, 1)); !errors.Is(err, guest.ErrReset) {
				t.Errorf("%+v: read %d, %v", h, n, err)
			}
			c.Reset()
		}
		for { // streams that are never closed
			if _, err := inside.Open(guest.TunnelHead{Kind: guest.TunnelName, Name: "a"}); err != nil {
				return
			}
		}
	})
	<-attacked
	select {
	case <-s.Done():
		t.Errorf("the session ended: %v", s.Err())
	default:
	}
}

// Many connections that are reset and made anew at once do not end the tunnel,
// though the host lets go of the former later.
func TestTunnelChurn(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) }})
	kept := l.dial(t, "tcp", proxyAt)
	pong := func() {
		t.Helper()
		_, _ = io.WriteString(kept, "x")
		if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
			t.Fatalf("a connection beside them: %v", err)
		}
	}
	pong()
	for range 10 {
		var all sync.WaitGroup
		for range guest.MaxTunnelConns {
			all.Go(func() {
				if c, err := l.try("tcp", proxyAt); err == nil {
					_, _ = io.WriteString(c, "x")
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			})
		}
		all.Wait()
		pong()
	}
	var open []net.Conn // more than there are wide ones
	for len(open) < 2*guest.MaxWideConns {
		c, err := l.try("tcp", proxyAt)
		if err != nil {
			continue
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil && b[0] == 'x' {
			open = append(open, c)
		} else if rest, _ := io.ReadAll(c); strings.Contains(string(rest), "no daemon") {
			t.Fatal("the tunnel is over")
		}
	}
}
