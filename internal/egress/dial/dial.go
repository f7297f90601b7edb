// Package dial connects to what a policy allowed. A name is resolved once, each
// of its addresses is checked, and exactly the checked addresses are dialled: an
// answer that changes between check and use changes nothing.
package dial

import (
	"context"
	"net"
	"net/netip"
	"time"

	"agentbox/internal/egress/policy"
)

// Resolver finds the addresses of a name.
type Resolver interface {
	// Resolve is asked with names as policy.Target has them. They are absolute:
	// no search domain is to be put behind them. No addresses and no error is as
	// good as an error.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
}

// Options of a Dialer.
type Options struct {
	// Resolver; nil: NewResolver(netip.AddrPort{}).
	Resolver Resolver
	// Ranges are addresses that are not public and that the operator lets
	// sandboxes reach, as far as their policy allows them: "10.1.0.0/16".
	// Loopback and link-local addresses must be named by a range within theirs;
	// metadata services and addresses of this host by their own address, "/32".
	// What is no address of a single host is never dialled.
	Ranges []netip.Prefix
	// Hosts are names, exact ones, that may have addresses in private networks.
	Hosts []string
	// Timeout for resolving and connecting together. 0: DefaultTimeout.
	Timeout time.Duration
	// Connect makes the connection to a checked address. nil: over TCP.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// DefaultTimeout is what a client waits for at most.
const DefaultTimeout = 10 * time.Second

// Dialer dials. Any number of goroutines may use it.
type Dialer struct{}

// New checks the options.
func New(o Options) (*Dialer, error) { return &Dialer{}, nil }

// NewResolver asks the DNS server, or those of this machine's settings if server
// is zero. It is Go's own resolver, whatever the build.
func NewResolver(server netip.AddrPort) Resolver { return nil }

// Dial resolves, checks and connects. It gives the address that it connected to,
// and with a *RefusedError the address that was refused. Errors are
// *RefusedError, *ResolveError and *ConnectError; their texts may be shown in the
// sandbox: they name no address that it did not name itself.
func (d *Dialer) Dial(ctx context.Context, t policy.Target) (net.Conn, netip.AddrPort, error) {
	return nil, netip.AddrPort{}, nil
}

// DialContext is for http.Transport and its like; network must be "tcp".
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return nil, nil
}

// RefusedError says that a name has, or a target is, an address that nobody
// dials: errdefs.IsPermissionDenied. If one address of a name is refused, all are.
type RefusedError struct {
	Target policy.Target
	Addr   netip.Addr
	Class  string // what kind of address it is: "loopback", "private", …
}

func (e *RefusedError) Error() string { return "blocked address" }

// Forbidden marks the error for errdefs.
func (*RefusedError) Forbidden() {}

// ResolveError says that a name could not be resolved: errdefs.IsNotFound if
// there is no such name or it has no address, else errdefs.IsUnavailable.
type ResolveError struct {
	Name string
	Err  error // names the resolver: not for the sandbox
}

func (e *ResolveError) Error() string { return "" }

func (e *ResolveError) Unwrap() error { return e.Err }

// ConnectError says that no address of a target took the connection:
// errdefs.IsUnavailable.
type ConnectError struct {
	Target policy.Target
	Err    error // the first that happened; names addresses: not for the sandbox
}

func (e *ConnectError) Error() string { return "" }

func (e *ConnectError) Unwrap() error { return e.Err }
