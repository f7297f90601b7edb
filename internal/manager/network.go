package manager

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Egress is the way of sandboxes to the network.
type Egress interface {
	// Default is that of callers who want one and do not say which.
	Default() sandbox.Network
	// Check refuses a network that can't be had.
	Check(n sandbox.Network) error
	// Open gives a sandbox its way out. One that it has goes on, under the network
	// that it has now.
	Open(sb *sandbox.Sandbox) client.Tunnel
	// Set changes what a sandbox that has a way may reach. With cut, connections
	// end that are not allowed any more.
	Set(uid string, n sandbox.Network, cut bool) error
	// Shut ends all connections of a sandbox, which may have none, and forgets its
	// addresses.
	Shut(uid string)
	// Register says from which addresses connections of a sandbox that has a way
	// come, and no others.
	Register(uid string, addrs []netip.Addr) error
	// ProxyURL has a token that names a sandbox, which ends until then at the latest,
	// to its proxy; zero: nobody knows when. own: it has a network of its own.
	ProxyURL(sb *sandbox.Sandbox, until time.Time, own bool) (string, error)
	// Requests are the hosts that a sandbox was denied; Dismiss takes one off the
	// list, or reports NotFound.
	Requests(uid string) []sandbox.NetworkRequest
	Dismiss(uid, request string) error
	// Transferred are the bytes that went out and came in.
	Transferred(uid string) (out, in int64)
	// Trust are the certificates, DER, that a sandbox's programs are to trust
	// besides its image's.
	Trust(sb *sandbox.Sandbox) [][]byte
}

// noEgress is a server whose sandboxes have no network.
type noEgress struct{}

func (noEgress) Check(n sandbox.Network) error {
	if n.On() {
		return sandbox.Refuse(errdefs.ErrNotImplemented, "this server gives sandboxes no network: network.mode can be none only")
	}
	return nil
}
func (noEgress) Default() sandbox.Network                 { return sandbox.Network{Mode: sandbox.NetworkFull} }
func (noEgress) Open(*sandbox.Sandbox) client.Tunnel      { return nil }
func (noEgress) Set(string, sandbox.Network, bool) error  { return nil }
func (noEgress) Shut(string)                              {}
func (noEgress) Register(string, []netip.Addr) error      { return nil }
func (noEgress) Requests(string) []sandbox.NetworkRequest { return nil }
func (noEgress) Dismiss(string, string) error             { return errdefs.ErrNotFound }
func (noEgress) Transferred(string) (out, in int64)       { return 0, 0 }
func (noEgress) Trust(*sandbox.Sandbox) [][]byte          { return nil }
func (noEgress) ProxyURL(*sandbox.Sandbox, time.Time, bool) (string, error) {
	return "", errdefs.ErrNotImplemented
}

// DefaultNetwork is that of callers who want one and do not say which.
func (m *Manager) DefaultNetwork() sandbox.Network { return m.opts.Egress.Default() }

// network is a checked one, with its mode.
func (m *Manager) network(n sandbox.Network) (sandbox.Network, error) {
	if err := m.opts.Egress.Check(n); err != nil {
		return n, err
	}
	n.Allow, n.Intercept = slices.Clone(n.Allow), slices.Clone(n.Intercept)
	switch {
	case !n.On():
		n.Mode, n.Resolver = sandbox.NetworkNone, false
	case n.Mode == "":
		n.Mode = sandbox.NetworkAllowlist
	}
	return n, nil
}

// wayOut is that of a sandbox that is about to run or runs; nil: it has none.
func (m *Manager) wayOut(sb *sandbox.Sandbox) client.Tunnel {
	if !sb.Network.On() {
		return nil
	}
	return m.opts.Egress.Open(sb)
}

// register lets a sandbox that runs with a network of its own reach the proxy from
// its addresses. Without that it is nobody there, so what fails here leads nowhere.
// The caller holds b.op, or nobody knows b yet.
func (m *Manager) register(ctx context.Context, b *box) {
	sb := b.snapshot()
	r, ok := runtime.As[runtime.Networked](m.opts.Runtime)
	if !ok || !sb.Network.On() {
		return
	}
	addrs, err := r.Addresses(ctx, sb.UID)
	if err == nil {
		m.wayOut(&sb) // the agent may not have asked for it yet
		err = m.opts.Egress.Register(sb.UID, addrs)
	}
	if err != nil {
		m.note(ctx, b, fmt.Errorf("let the sandbox reach the proxy: %w", err))
	}
}

// ProxyURL is the URL of a running sandbox's proxy for programs in it, with a token
// that names the sandbox there: http://sandbox:jwt_TOKEN@HOST:PORT. On back ends
// whose sandboxes have no network of their own it leads to the sandbox's own end of
// the tunnel, where the token is checked and none is needed.
//
// The token is a credential of this one sandbox. Doors give it to the sandbox's
// owner only, and back ends to programs in the sandbox; it is in no log. It is
// good as long as the sandbox lives, however its lifetime is changed.
func (m *Manager) ProxyURL(ctx context.Context, c sandbox.Caller, id string) (string, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return "", fmt.Errorf("make the URL of the sandbox's proxy: %w", err)
	}
	b.mu.Lock()
	err = b.usable()
	b.mu.Unlock()
	sb := b.snapshot()
	if err == nil && !sb.Network.On() {
		err = sandbox.Refuse(errdefs.ErrFailedPrecondition, "Sandbox has no network")
	}
	if err != nil {
		return "", fmt.Errorf("make the URL of the sandbox's proxy: %w", err)
	}
	var until time.Time
	if most := m.policy.MaxLifetime; most != 0 {
		until = sb.Created.Add(most)
		if sb.Expires.After(until) { // there was another maximum
			until = sb.Expires
		}
	}
	_, own := runtime.As[runtime.Networked](m.opts.Runtime)
	return m.opts.Egress.ProxyURL(&sb, until, own)
}

// SetNetwork changes what a sandbox may reach, at once for everything new. With
// cut, connections end that are not allowed any more; they do, too, when there is
// to be no network. It goes on when ctx ends first.
func (m *Manager) SetNetwork(ctx context.Context, c sandbox.Caller, id string, n sandbox.Network, cut bool) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	if err == nil {
		n, err = m.network(n)
	}
	if err == nil {
		err = m.detached(ctx, func(ctx context.Context) error {
			return m.changeNetwork(ctx, b, cut, func(sandbox.Network) (sandbox.Network, error) { return n, nil })
		})
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("set the network of the sandbox: %w", err)
	}
	return b.snapshot(), nil
}

// changeNetwork records what a sandbox may reach from now on and lets it hold; or
// it is again what it was before.
func (m *Manager) changeNetwork(ctx context.Context, b *box, cut bool, change func(sandbox.Network) (sandbox.Network, error)) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.isGone() {
		return b.goneErr()
	}
	before := b.snapshot()
	if before.Status == sandbox.Destroying {
		return b.stateErr("Sandbox is being destroyed")
	}
	rec := before
	var err error
	if rec.Network, err = change(before.Network); err != nil {
		return err
	}
	if err := m.save(ctx, b, rec, nil); err != nil {
		return err
	}
	if err := m.applyNetwork(b.work(ctx), b, before.Network, cut); err != nil {
		// What takes something away holds on the host, whatever the guest says to it.
		if !m.more(&before, &rec) {
			m.note(ctx, b, fmt.Errorf("tell the sandbox's agent of its network: %w", err))
		} else {
			return errors.Join(err, m.save(ctx, b, before, nil), m.applyNetwork(context.WithoutCancel(ctx), b, rec.Network, true))
		}
	}
	ev := m.event(rec, sandbox.EventUpdate)
	ev.Reason, ev.Detail = "", "network"
	m.addEvent(ctx, b, ev)
	return nil
}

// more reports whether the agent has to serve more than before, or programs have to
// trust more.
func (m *Manager) more(before, after *sandbox.Sandbox) bool {
	return after.Network.On() && (!before.Network.On() || after.Network.Resolver && !before.Network.Resolver || len(m.trust(after)) > len(m.trust(before)))
}

// trust are the certificates that a sandbox's programs are to trust.
func (m *Manager) trust(sb *sandbox.Sandbox) [][]byte { return m.opts.Egress.Trust(sb) }

// applyNetwork lets the recorded network of a sandbox hold. The caller holds b.op.
func (m *Manager) applyNetwork(ctx context.Context, b *box, before sandbox.Network, cut bool) error {
	sb := b.snapshot()
	if b.running() == nil {
		return nil // it has it when it runs
	}
	if err := m.opts.Egress.Set(sb.UID, sb.Network, cut || !sb.Network.On()); err != nil {
		return err
	}
	was := sb
	was.Network = before
	if before.On() == sb.Network.On() && before.Resolver == sb.Network.Resolver && slices.EqualFunc(m.trust(&was), m.trust(&sb), bytes.Equal) {
		return nil
	}
	if err := m.inform(ctx, b); err != nil {
		return err
	}
	m.register(ctx, b)
	return nil
}

// ChangeNetwork puts hosts on a sandbox's list and takes others off it, as they
// stand there: at once, so that of two changes none is lost. A sandbox that had no
// network has one with the first host, and none without the last.
func (m *Manager) ChangeNetwork(ctx context.Context, c sandbox.Caller, id string, add, remove []string, cut bool) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	if err == nil {
		err = m.detached(ctx, func(ctx context.Context) error {
			return m.changeNetwork(ctx, b, cut, func(n sandbox.Network) (sandbox.Network, error) { return m.edited(n, add, remove) })
		})
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("change the network of the sandbox: %w", err)
	}
	return b.snapshot(), nil
}

// edited is a network with another list.
func (m *Manager) edited(n sandbox.Network, add, remove []string) (sandbox.Network, error) {
	if n.Mode == sandbox.NetworkFull {
		return n, sandbox.Refuse(errdefs.ErrFailedPrecondition, "the sandbox's network is full: it has no list")
	}
	if !n.On() {
		n.Resolver = true // the default, as for one that is made with a network
	}
	n.Mode, n.Allow = "", slices.Clone(n.Allow)
	for _, host := range remove {
		i := slices.Index(n.Allow, host)
		if i < 0 {
			return n, sandbox.Refuse(errdefs.ErrInvalidArgument, "%.64q is not on the list of the sandbox's network", host)
		}
		n.Allow = slices.Delete(n.Allow, i, i+1)
	}
	for _, host := range add {
		if !slices.Contains(n.Allow, host) {
			n.Allow = append(n.Allow, host)
		}
	}
	if len(n.Allow) == 0 {
		n.Intercept = nil // there is nothing to intercept, and no network may name any
	}
	return m.network(n)
}

// NetworkRequests are the hosts that a sandbox was denied and nobody decided on
// since, the oldest first. Admins may ask for any owner's sandbox, by its full id.
func (m *Manager) NetworkRequests(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.NetworkRequest, error) {
	b, err := m.findAny(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("list the denied hosts: %w", err)
	}
	return m.opts.Egress.Requests(b.uid()), nil
}

// AllNetworkRequests are those of all owners' sandboxes, in the order of sandboxes'
// full ids and requests' ids. Only admins may ask.
func (m *Manager) AllNetworkRequests(_ context.Context, c sandbox.Caller) ([]sandbox.OwnedNetworkRequest, error) {
	if !c.Admin {
		return nil, sandbox.Refuse(errdefs.ErrPermissionDenied, "the denied hosts of all owners need an admin key")
	}
	var all []sandbox.OwnedNetworkRequest
	for _, b := range m.index.all() {
		sb := b.snapshot()
		for _, r := range m.opts.Egress.Requests(sb.UID) {
			all = append(all, sandbox.OwnedNetworkRequest{NetworkRequest: r, Owner: sb.Owner, Sandbox: sb.UID})
		}
	}
	slices.SortFunc(all, func(a, b sandbox.OwnedNetworkRequest) int {
		return cmp.Or(strings.Compare(a.Sandbox, b.Sandbox), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// findAny is find, and for an admin also another owner's sandbox, by its full id.
func (m *Manager) findAny(ctx context.Context, c sandbox.Caller, id string) (*box, error) {
	b, err := m.find(ctx, c, id)
	if err != nil && c.Admin {
		if other := m.index.byUID(id); other != nil {
			return other, nil
		}
	}
	return b, err
}

// Decide answers a request: the host is allowed from now on, on the port that was
// asked for, or the request is dismissed. Admins may decide for any owner's
// sandbox, by its full id. NotFound: there is no such request.
func (m *Manager) Decide(ctx context.Context, c sandbox.Caller, id, request string, allow bool) (sandbox.Sandbox, error) {
	b, err := m.findAny(ctx, c, id)
	if err == nil && allow {
		err = m.detached(ctx, func(ctx context.Context) error { return m.allowRequested(ctx, b, request) })
	} else if err == nil {
		err = m.opts.Egress.Dismiss(b.uid(), request)
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("decide on a denied host: %w", err)
	}
	return b.snapshot(), nil
}

func (m *Manager) allowRequested(ctx context.Context, b *box, request string) error {
	return m.changeNetwork(ctx, b, false, func(n sandbox.Network) (sandbox.Network, error) {
		all := m.opts.Egress.Requests(b.uid())
		i := slices.IndexFunc(all, func(r sandbox.NetworkRequest) bool { return r.ID == request })
		if i < 0 {
			return n, sandbox.Refuse(errdefs.ErrNotFound, "there is no undecided request %.32q", request)
		}
		host := all[i].Host
		if !strings.Contains(host, ".") && !strings.Contains(host, ":") {
			host += "." // a name of one label would be a preset's
		}
		return m.edited(n, []string{net.JoinHostPort(host, strconv.Itoa(int(all[i].Port)))}, nil)
	})
}
