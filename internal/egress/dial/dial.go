// Package dial connects to what a policy allowed. A name is resolved once, each
// of its addresses is checked, and exactly the checked addresses are dialled: an
// answer that changes between check and use changes nothing.
package dial

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
)

// Options of a Dialer.
type Options struct {
	// Resolver; nil: NewResolver(netip.AddrPort{}).
	Resolver Resolver
	// Ranges are addresses that are not public and that the operator lets
	// sandboxes reach, as far as their policy allows the name or address:
	// "10.1.0.0/16". Loopback and link-local addresses must be named by a range
	// within theirs, metadata services and addresses of this host by a range of
	// the one address. What is no address of a single host is never dialled.
	Ranges []netip.Prefix
	// Hosts are names, exact ones, that may have addresses in private networks
	// (RFC 1918, 6598 and 4193).
	Hosts []string
	// Timeout for resolving and connecting together. 0: DefaultTimeout.
	Timeout time.Duration
	// Connect makes the connection to a checked address. It must return soon
	// after its context ends. nil: over TCP.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// DefaultTimeout is for resolving and connecting. Clients give up after 30 s and
// more; they should see our error rather than their own.
const DefaultTimeout = 10 * time.Second

// MaxAddrs is how many addresses of a name are checked and dialled. There may be
// more in an answer; they are neither.
const MaxAddrs = 16

// Dialer dials. Any number of goroutines may use it.
type Dialer struct {
	resolver Resolver
	ranges   []netip.Prefix
	hosts    map[string]bool
	timeout  time.Duration
	connect  func(context.Context, netip.AddrPort) (net.Conn, error)
	own      func(netip.Addr) bool
}

// New checks the options.
func New(o Options) (*Dialer, error) {
	d := &Dialer{
		resolver: o.Resolver, ranges: slices.Clone(o.Ranges), hosts: map[string]bool{},
		timeout: cmp.Or(o.Timeout, DefaultTimeout), connect: o.Connect, own: isOwn,
	}
	if d.resolver == nil {
		d.resolver = NewResolver(netip.AddrPort{})
	}
	if d.connect == nil {
		d.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		}
	}
	for _, r := range o.Ranges {
		if !r.IsValid() || r != r.Masked() || r.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is no range, such as 10.1.0.0/16, that begins with its first address: %w", r, errdefs.ErrInvalidArgument)
		}
	}
	for _, h := range o.Hosts {
		t, err := policy.ParseHost(h, 1)
		if err != nil {
			return nil, fmt.Errorf("private hosts: %w", err)
		}
		if t.Name == "" {
			return nil, fmt.Errorf("private hosts: %s is an address; make it a range: %w", h, errdefs.ErrInvalidArgument)
		}
		d.hosts[t.Name] = true
	}
	return d, nil
}

// Dial resolves, checks and connects. It gives the address that it connected to,
// and with a *RefusedError the address that was refused. Other errors are
// *ResolveError and *ConnectError, and that of policy.ParseTarget if t is not in
// the form that it gives. Their texts may be shown in the sandbox: they have no
// address that it did not name itself.
func (d *Dialer) Dial(ctx context.Context, t policy.Target) (net.Conn, netip.AddrPort, error) {
	if again, err := policy.ParseTarget(t.String(), 0); err != nil || again != t {
		return nil, netip.AddrPort{}, cmp.Or(err, fmt.Errorf("target %q is not in canonical form: %w", t, errdefs.ErrInvalidArgument))
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	addrs, err := d.resolve(ctx, t)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	to := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		a = a.WithZone("") // a hosts file may have one; ranges contain no address with a zone
		if refused := d.check(t, a); refused != nil {
			return nil, netip.AddrPortFrom(a, t.Port), refused
		}
		to = append(to, netip.AddrPortFrom(a, t.Port))
	}
	conn, at, err := race(ctx, interleave(to), d.connect)
	if err != nil {
		return nil, netip.AddrPort{}, &ConnectError{Target: t, Err: err}
	}
	return conn, at, nil
}

// DialContext is for http.Transport and its like; network must be "tcp".
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("dial %q: %w", network, errdefs.ErrNotImplemented)
	}
	t, err := policy.ParseTarget(addr, 0)
	if err != nil {
		return nil, err
	}
	conn, _, err := d.Dial(ctx, t)
	return conn, err
}

// resolve gives the addresses of a target, not more than are used.
func (d *Dialer) resolve(ctx context.Context, t policy.Target) ([]netip.Addr, error) {
	if t.Name == "" {
		return []netip.Addr{t.Addr}, nil
	}
	addrs, err := d.resolver.Resolve(ctx, t.Name)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: t.Name, IsNotFound: true}
	}
	if err != nil {
		return nil, &ResolveError{Name: t.Name, Err: err}
	}
	return addrs[:min(len(addrs), MaxAddrs)], nil
}

// check refuses addresses that are neither public nor opened by the operator. It
// returns an error, not a *RefusedError, so that nil stays nil.
func (d *Dialer) check(t policy.Target, addr netip.Addr) error {
	c, within, special := classify(addr)
	if special && !d.opened(t, addr, c, within) {
		return &RefusedError{Target: t, Addr: addr, Class: c.name}
	}
	onPurpose := special && (c.opening == single || c.opening == inClass)
	if !onPurpose && d.own(addr) && !d.opened(t, addr, ofHost, netip.Prefix{}) {
		return &RefusedError{Target: t, Addr: addr, Class: ofHost.name}
	}
	return nil
}

// opened reports whether the operator lets sandboxes reach an address of a class,
// of which it is in the given prefix.
func (d *Dialer) opened(t policy.Target, addr netip.Addr, c class, prefix netip.Prefix) bool {
	if c.opening == byHost && d.hosts[t.Name] {
		return true
	}
	return c.opening != never && slices.ContainsFunc(d.ranges, func(r netip.Prefix) bool {
		switch {
		case !r.Contains(addr):
			return false
		case c.opening == single:
			return r.IsSingleIP()
		case c.opening == inClass:
			return r.Bits() >= prefix.Bits()
		}
		return true
	})
}
