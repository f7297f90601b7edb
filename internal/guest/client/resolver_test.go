package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

// namesOf is the resolver of a program in the sandbox.
func (l *hostLoopback) namesOf(network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return l.try(network, "127.0.0.53:53")
	}}
}

func lookup(t *testing.T, r *net.Resolver, name string) (string, error) {
	t.Helper()
	a, err := r.LookupNetIP(ctx(t), "ip", name+".")
	if err != nil {
		return "", err
	}
	if len(a) != 1 {
		t.Errorf("%s has the addresses %v", name, a)
	}
	return a[0].Unmap().String(), nil
}

func TestResolver(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	conf := &guestv1.GuestConfig{Network: &guestv1.Network{Resolver: true, Ports: []uint32{8443, 443, 0, 70000}}}
	l, g, s := newNetwork(t, conf, toyTunnel{
		connect: func(_ context.Context, c net.Conn, name string, port uint16) {
			fmt.Fprintf(c, "%s %d\n", name, port)
			_ = c.(*guest.TunnelConn).CloseWrite()
		},
		names: func(name string) bool {
			mu.Lock()
			defer mu.Unlock()
			asked[name]++
			return strings.HasSuffix(name, ".allowed.example")
		},
	})
	if got := l.conf.String(); got != "127.0.0.53" {
		t.Errorf("programs ask %s", got)
	}
	addrs := map[string]string{}
	for _, network := range []string{"udp", "tcp"} {
		r := l.namesOf(network)
		for _, name := range []string{"a.allowed.example", "b.allowed.example", "A.Allowed.Example"} {
			addr, err := lookup(t, r, name)
			if err != nil || !netip.MustParsePrefix("127.64.0.0/10").Contains(netip.MustParseAddr(addr)) {
				t.Fatalf("%s over %s: %s, %v", name, network, addr, err)
			}
			name = strings.ToLower(name)
			if old := addrs[name]; old != "" && old != addr {
				t.Errorf("%s was at %s and is at %s", name, old, addr)
			}
			addrs[name] = addr
		}
		for _, name := range []string{"allowed.example", "evil.example", "allowed.example.evil.example", "127.0.0.1.nip.example"} {
			var e *net.DNSError
			if addr, err := lookup(t, r, name); !errors.As(err, &e) || !e.IsNotFound {
				t.Errorf("%s over %s: %s, %v", name, network, addr, err)
			}
		}
	}
	if addrs["a.allowed.example"] == addrs["b.allowed.example"] {
		t.Errorf("two names have one address: %v", addrs)
	}
	if asked["A.Allowed.Example"]+asked["a.allowed.example."] > 0 || asked["a.allowed.example"] == 0 {
		t.Errorf("the host was asked for %v", asked)
	}
	for _, port := range []int{80, 443, 8443} {
		for name, addr := range addrs {
			want := fmt.Sprintf("%s %d\n", name, port)
			b := make([]byte, len(want))
			if _, err := io.ReadFull(l.dial(t, "tcp", fmt.Sprintf("%s:%d", addr, port)), b); err != nil || string(b) != want {
				t.Errorf("%s:%d led to %q, %v", addr, port, b, err)
			}
		}
	}
	// Without a host there is no answer, which is not a denial.
	_ = s.Close()
	var e *net.DNSError
	if addr, err := lookup(t, l.namesOf("udp"), "a.allowed.example"); !errors.As(err, &e) || e.IsNotFound {
		t.Errorf("without a host: %s, %v", addr, err)
	}
	// The resolver can be taken away.
	g.tunnel(networkOn, toyTunnel{})
	if l.conf.IsValid() {
		t.Errorf("programs still ask %s", l.conf)
	}
	if _, err := l.try("tcp", addrs["a.allowed.example"]+":443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// openTunnel leads everywhere.
var openTunnel = toyTunnel{
	connect: func(ctx context.Context, c net.Conn, _ string, _ uint16) { echo(ctx, c) },
	names:   func(string) bool { return true },
}

// A port that a server of the user has is that server's.
func TestResolverPortTaken(t *testing.T) {
	l := newHostLoopback()
	l.refuse = 80
	a := agent.New(agent.Options{Launcher: launcher{}, Loopback: l})
	t.Cleanup(a.Close)
	g := &guestBox{t: t, agent: a}
	g.tunnel(&guestv1.GuestConfig{Network: &guestv1.Network{Resolver: true}}, openTunnel)
	addr, err := lookup(t, l.namesOf("udp"), "a.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.try("tcp", addr+":443"); err != nil {
		t.Error(err)
	}
	if _, err := l.try("tcp", addr+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// Names without end cost a bounded number of listeners; the latest have theirs.
func TestResolverManyNames(t *testing.T) {
	l, _, _ := newNetwork(t, &guestv1.GuestConfig{Network: &guestv1.Network{Resolver: true}}, openTunnel)
	r := l.namesOf("udp")
	const names, kept = 300, 256
	var addrs []string
	for i := range names {
		addr, err := lookup(t, r, fmt.Sprintf("n%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, addr+":443")
	}
	for i, at := range addrs {
		c, err := l.try("tcp", at)
		if err == nil {
			c.Close()
		}
		if there := i >= names-kept; there != (err == nil) {
			t.Fatalf("name %d of %d: %v", i, names, err)
		}
	}
}
