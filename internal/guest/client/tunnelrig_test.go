package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
)

// hostLoopback lets an agent listen on this machine, on free ports instead of the
// sandbox's.
type hostLoopback struct {
	mu     sync.Mutex
	at     map[string]string // where "tcp" or "udp" and an address of the sandbox is
	conf   netip.Addr        // of the resolver that programs ask
	refuse uint16            // a port that is taken
	taken  bool              // a program waits on the port that is listened to aside
}

func newHostLoopback() *hostLoopback { return &hostLoopback{at: map[string]string{}} }

func (l *hostLoopback) Listen(at netip.AddrPort) (agent.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != 0 && at.Port() == l.refuse {
		return nil, syscall.EADDRINUSE
	}
	t, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.at["tcp "+at.String()] = t.Addr().String()
	return tcpListener{t.(*net.TCPListener), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.at["tcp "+at.String()] == t.Addr().String() {
			delete(l.at, "tcp "+at.String()) // another one gets the port
		}
	}}, nil
}

type tcpListener struct {
	*net.TCPListener
	gone func()
}

func (l tcpListener) Close() error {
	l.gone()
	return l.TCPListener.Close()
}

func (l tcpListener) Accept() (agent.PortConn, error) { return l.AcceptTCP() }

func (l *hostLoopback) ListenAside(at netip.AddrPort) (agent.Listener, error) { return l.Listen(at) }

func (l *hostLoopback) Taken(netip.AddrPort) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, nil
}

func (l *hostLoopback) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at["udp "+at.String()] = u.LocalAddr().String()
	return u, nil
}

func (l *hostLoopback) UseResolver(at netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conf = at
	return nil
}

// dial connects as a program in the sandbox does.
func (l *hostLoopback) dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	c, err := l.try(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // nothing here may wait for ever
		t.Fatal(err)
	}
	return c
}

func (l *hostLoopback) try(network, address string) (net.Conn, error) {
	l.mu.Lock()
	at := l.at[network+" "+address]
	l.mu.Unlock()
	if at == "" {
		return nil, fmt.Errorf("connect to %s: %w", address, syscall.ECONNREFUSED)
	}
	return net.Dial(network, at)
}

// toyTunnel serves connections with functions.
type toyTunnel struct {
	proxy   func(ctx context.Context, c net.Conn)
	connect func(ctx context.Context, c net.Conn, name string, port uint16)
	names   func(name string) bool
}

func (t toyTunnel) Proxy(ctx context.Context, c net.Conn) { t.proxy(ctx, c) }

func (t toyTunnel) Connect(ctx context.Context, c net.Conn, name string, port uint16) {
	t.connect(ctx, c, name, port)
}

func (t toyTunnel) MayResolve(_ context.Context, name string) bool { return t.names(name) }

// echo sends back what comes, to its end.
func echo(_ context.Context, c net.Conn) {
	if _, err := io.Copy(struct{ io.Writer }{c}, c); err == nil {
		_ = c.(*guest.TunnelConn).CloseWrite()
	}
}

// newNetwork is an agent with a network, connected to a host that has the tunnel.
func newNetwork(t *testing.T, conf *guestv1.GuestConfig, tunnel client.Tunnel) (*hostLoopback, *guestBox, *client.Session) {
	t.Helper()
	l := newHostLoopback()
	a := agent.New(agent.Options{Launcher: launcher{}, Loopback: l})
	t.Cleanup(a.Close)
	g := &guestBox{t: t, agent: a}
	return l, g, g.tunnel(conf, tunnel)
}

// tunnel begins a session with one.
func (g *guestBox) tunnel(conf *guestv1.GuestConfig, tunnel client.Tunnel) *client.Session {
	g.t.Helper()
	g.epoch++
	s, err := g.dial(client.Options{SandboxID: "test", Epoch: g.epoch, Config: conf, Tunnel: tunnel}, true)
	if err != nil {
		g.t.Fatal(err)
	}
	if e := s.Reply().GetError(); e != "" {
		g.t.Fatal(e)
	}
	return s
}
