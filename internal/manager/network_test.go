package manager_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// gateway notes who may come from where.
type gateway struct {
	manager.Egress
	mu    sync.Mutex
	open  map[string]bool
	addrs map[string][]netip.Addr
	until time.Time // of the last URL
	err   error
}

func (g *gateway) Check(sandbox.Network) error              { return nil }
func (g *gateway) Set(string, sandbox.Network, bool) error  { return nil }
func (g *gateway) Requests(string) []sandbox.NetworkRequest { return nil }
func (g *gateway) Trust(*sandbox.Sandbox) [][]byte          { return nil }
func (g *gateway) Transferred(string) (out, in int64)       { return 0, 0 }
func (g *gateway) ProxyURL(sb *sandbox.Sandbox, until time.Time, own bool) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
	if own {
		return "http://own/" + sb.UID, nil
	}
	return "http://tunnel/" + sb.UID, nil
}

func (g *gateway) Open(sb *sandbox.Sandbox) client.Tunnel {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[sb.UID] = true
	return nil
}

func (g *gateway) Shut(uid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, uid)
	delete(g.addrs, uid)
}

func (g *gateway) Register(uid string, addrs []netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.err != nil:
		return g.err
	case !g.open[uid]:
		return errdefs.ErrFailedPrecondition
	}
	g.addrs[uid] = addrs
	return nil
}

func (g *gateway) of(uid string) []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addrs[uid]
}

// networked is a back end whose sandboxes have a network of their own.
type networked struct {
	runtime.Runtime
	addr netip.Addr
}

func (n networked) Unwrap() runtime.Runtime { return n.Runtime }
func (n networked) Addresses(ctx context.Context, id string) ([]netip.Addr, error) {
	return []netip.Addr{n.addr}, ctx.Err()
}

// TestAddressesAreRegistered as long as a sandbox runs and has a network: at its
// creation, its start and when another daemon takes it over; where they can't be,
// it runs on and says so.
func TestAddressesAreRegistered(t *testing.T) {
	r := newRig(t)
	at := netip.MustParseAddr("192.0.2.7")
	g := &gateway{open: map[string]bool{}, addrs: map[string][]netip.Addr{}}
	r.egress, r.wrap = g, func(rt runtime.Runtime) runtime.Runtime { return networked{rt, at} }
	d := r.open()
	want := func(when, uid string, addrs ...netip.Addr) {
		t.Helper()
		if got := g.of(uid); !slices.Equal(got, addrs) {
			t.Errorf("%s it has the addresses %v, want %v", when, got, addrs)
		}
	}
	allow := sandbox.Network{Allow: []string{"example.com"}}
	none := d.create(sandbox.CreateRequest{})
	sb := d.create(sandbox.CreateRequest{Network: allow})
	want("without a network", none.UID)
	want("when it was made", sb.UID, at)
	if _, err := d.SetNetwork(t.Context(), acme, none.UID, allow, false); err != nil {
		t.Fatal(err)
	}
	want("when it got a network", none.UID, at)
	if _, err := d.Stop(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	want("while it is stopped", sb.UID)
	if _, err := d.Start(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	want("when it was started", sb.UID, at)
	d.close()
	g.Shut(sb.UID)
	d = r.open()
	want("when it was taken over", sb.UID, at)
	if err := d.Destroy(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	want("when it is gone", sb.UID)

	g.mu.Lock()
	g.err = errors.New("the address is another's")
	g.mu.Unlock()
	sb = d.create(sandbox.CreateRequest{Network: allow})
	if sb.Status != sandbox.Live {
		t.Errorf("it is %s", sb.Status)
	}
	evs, err := d.Events(t.Context(), acme, sb.UID, 0)
	if err != nil || !slices.ContainsFunc(evs, func(e sandbox.Event) bool { return strings.Contains(e.Detail, "the address is another's") }) {
		t.Errorf("events: %+v, %v", evs, err)
	}
}

// TestProxyURL is for the owner of a sandbox that runs and has a network.
func TestProxyURL(t *testing.T) {
	r := newRig(t)
	g := &gateway{open: map[string]bool{}, addrs: map[string][]netip.Addr{}}
	r.egress = g
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Network: sandbox.Network{Allow: []string{"example.com"}}, Lifetime: time.Hour})
	none := d.create(sandbox.CreateRequest{})
	if got, err := d.ProxyURL(t.Context(), acme, sb.Short); err != nil || got != "http://tunnel/"+sb.UID || !g.until.IsZero() {
		t.Errorf("got %q until %v, %v", got, g.until, err)
	}
	if _, err := d.ProxyURL(t.Context(), sandbox.Caller{Owner: "other"}, sb.UID); !errdefs.IsNotFound(err) {
		t.Errorf("another owner: %v", err)
	}
	if _, err := d.ProxyURL(t.Context(), acme, none.UID); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("without a network: %v", err)
	}
	if _, err := d.Stop(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ProxyURL(t.Context(), acme, sb.UID); !errdefs.IsConflict(err) && !errdefs.IsFailedPrecondition(err) {
		t.Errorf("stopped: %v", err)
	}
	r.wrap = func(rt runtime.Runtime) runtime.Runtime { return networked{rt, netip.MustParseAddr("192.0.2.7")} }
	r.policy.MaxLifetime = 2 * time.Hour
	d.close()
	d = r.open()
	if _, err := d.Start(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	got, err := d.ProxyURL(t.Context(), acme, sb.UID)
	if end := sb.Created.Add(2 * time.Hour); err != nil || got != "http://own/"+sb.UID || !g.until.Equal(end) {
		t.Errorf("with a network of its own, and a maximum of life: %q until %v, want %v, %v", got, g.until, end, err)
	}
}

// TestFirstHostComesWithResolver: a sandbox that gets a network by its first host
// has what it would have had from the start; what was said of the resolver stays.
func TestFirstHostComesWithResolver(t *testing.T) {
	r := newRig(t)
	r.egress = &gateway{open: map[string]bool{}, addrs: map[string][]netip.Addr{}}
	d := r.open()
	without := d.create(sandbox.CreateRequest{})
	said := d.create(sandbox.CreateRequest{Network: sandbox.Network{Allow: []string{"a.example"}}})
	change := func(uid string, add, remove []string) sandbox.Network {
		t.Helper()
		return d.must(d.ChangeNetwork(t.Context(), acme, uid, add, remove, false)).Network
	}
	if n := change(without.UID, []string{"a.example"}, nil); !n.Resolver || n.Mode != sandbox.NetworkAllowlist {
		t.Errorf("with the first host it has %+v", n)
	}
	if n := change(without.UID, nil, []string{"a.example"}); n.Resolver || n.On() {
		t.Errorf("without the last it has %+v", n)
	}
	if n := change(without.UID, []string{"b.example"}, nil); !n.Resolver {
		t.Errorf("with another it has %+v", n)
	}
	if n := change(said.UID, []string{"b.example"}, []string{"a.example"}); n.Resolver {
		t.Errorf("one that was to have no resolver has %+v", n)
	}
}
