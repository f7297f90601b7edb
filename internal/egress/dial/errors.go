package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
)

// RefusedError says that a name has, or a target is, an address that nobody
// dials: errdefs.IsPermissionDenied. If one address of a name is refused, all are.
type RefusedError struct {
	Target policy.Target
	Addr   netip.Addr
	Class  string // what kind of address it is: "loopback", "private", …
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("blocked address: that of %s is not public (%s)", e.Target.Host(), e.Class)
}

// Forbidden marks the error for errdefs.
func (*RefusedError) Forbidden() {}

// ResolveError says that a name could not be resolved: errdefs.IsNotFound if
// there is no such name or it has no address, else errdefs.IsUnavailable.
type ResolveError struct {
	Name string
	Err  error // names the resolver: not for the sandbox
}

func (e *ResolveError) Error() string { return "resolve " + e.Name + ": " + e.reason() }

func (e *ResolveError) reason() string {
	switch {
	case e.noSuch():
		return "no such host"
	case late(e.Err):
		return "timed out"
	}
	return "the resolver failed"
}

// Timeout makes it a timeout for those who ask as they ask a net.Error.
func (e *ResolveError) Timeout() bool { return late(e.Err) }

func (e *ResolveError) noSuch() bool {
	var dns *net.DNSError
	return errors.As(e.Err, &dns) && dns.IsNotFound
}

// Unwrap gives the class and the cause.
func (e *ResolveError) Unwrap() []error {
	if e.noSuch() {
		return []error{errdefs.ErrNotFound, e.Err}
	}
	return []error{errdefs.ErrUnavailable, e.Err}
}

// ConnectError says that no address of a target took the connection:
// errdefs.IsUnavailable.
type ConnectError struct {
	Target policy.Target
	Err    error // of the first attempt; names an address: not for the sandbox
}

func (e *ConnectError) Error() string {
	return "connect to " + e.Target.String() + ": " + e.reason()
}

// reason tells apart what a program can do something about. Other errors are this
// machine's own: that it has no more descriptors or ports is not the sandbox's
// business.
func (e *ConnectError) reason() string {
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(e.Err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(e.Err, syscall.EHOSTUNREACH), errors.Is(e.Err, syscall.ENETUNREACH):
		return "unreachable"
	case late(e.Err):
		return "timed out"
	}
	return "failed"
}

// Timeout makes it a timeout for those who ask as they ask a net.Error.
func (e *ConnectError) Timeout() bool { return late(e.Err) }

// Unwrap gives the class and the cause.
func (e *ConnectError) Unwrap() []error { return []error{errdefs.ErrUnavailable, e.Err} }

func late(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}
