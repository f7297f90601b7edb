package dial_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

// answer is a resolver that always says the same.
type answer struct {
	addrs []netip.Addr
	err   error
}

func (a answer) Resolve(context.Context, string) ([]netip.Addr, error) { return a.addrs, a.err }

// TestErrors: their classes, and texts that name nothing of the host's network.
func TestErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	ok := addrs("1.1.1.1")
	for want, c := range map[string]struct {
		resolve answer
		connect error
		class   func(error) bool
	}{
		"resolve a.test: no such host":              {answer{err: &net.DNSError{Err: "no such host", Name: "a.test.", Server: "10.0.0.2:53", IsNotFound: true}}, nil, errdefs.IsNotFound},
		"resolve a.test: timed out":                 {answer{err: &net.DNSError{Err: "i/o timeout", Name: "a.test.", Server: "10.0.0.2:53", IsTimeout: true}}, nil, errdefs.IsUnavailable},
		"resolve a.test: the resolver failed":       {answer{err: &net.DNSError{Err: "server misbehaving", Name: "a.test.", Server: "10.0.0.2:53"}}, nil, errdefs.IsUnavailable},
		"connect to a.test:443: connection refused": {answer{addrs: ok}, refused, errdefs.IsUnavailable},
		"connect to a.test:443: timed out":          {answer{addrs: ok}, context.DeadlineExceeded, errdefs.IsUnavailable},
		"connect to a.test:443: unreachable":        {answer{addrs: ok}, os.NewSyscallError("connect", syscall.EHOSTUNREACH), errdefs.IsUnavailable},
		"connect to a.test:443: connection reset":   {answer{addrs: ok}, os.NewSyscallError("connect", syscall.ECONNRESET), errdefs.IsUnavailable},
		"connect to b.test:443: failed":             {answer{addrs: ok}, os.NewSyscallError("socket", syscall.EMFILE), errdefs.IsUnavailable}, // the host's own business
		"connect to a.test:443: failed":             {answer{addrs: ok}, errors.New("10.0.0.7 is out of order"), errdefs.IsUnavailable},
	} {
		d, err := dial.New(dial.Options{Resolver: c.resolve, Connect: func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, c.connect }})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = d.Dial(t.Context(), policy.Target{Name: want[strings.Index(want, "test")-2:][:6], Port: 443})
		cause := c.connect
		if c.resolve.err != nil {
			cause = c.resolve.err
		}
		if err == nil || err.Error() != want || !c.class(err) || !errors.Is(err, cause) {
			t.Errorf("got %v, want %q with its class and its cause", err, want)
		}
	}
	d, err := dial.New(dial.Options{Resolver: answer{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Dial(t.Context(), policy.Target{Name: "a.test", Port: 443}); !errdefs.IsNotFound(err) || err.Error() != "resolve a.test: no such host" {
		t.Errorf("a name without addresses: %v", err)
	}
}

// stuck never answers by itself.
type stuck struct{}

func (stuck) Resolve(ctx context.Context, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTimeout: resolving and connecting have one limit together, and end with
// the caller's context.
func TestTimeout(t *testing.T) {
	hang := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for what, c := range map[string]struct {
		o    dial.Options
		want time.Duration
		text string
	}{
		"resolver":   {dial.Options{Resolver: stuck{}}, dial.DefaultTimeout, "resolve a.test: timed out"},
		"connection": {dial.Options{Resolver: answer{addrs: addrs("1.1.1.1", "2606:4700::1", "8.8.8.8")}, Connect: hang, Timeout: time.Minute}, time.Minute, "connect to a.test:80: timed out"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, err := dial.New(c.o)
			if err != nil {
				t.Fatal(err)
			}
			d.SetOwn(func(netip.Addr) bool { return false })
			start := time.Now()
			if _, _, err := d.Dial(t.Context(), policy.Target{Name: "a.test", Port: 80}); err == nil || err.Error() != c.text || time.Since(start) != c.want {
				t.Errorf("%s: %v after %v", what, err, time.Since(start))
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start = time.Now()
			if _, _, err := d.Dial(ctx, policy.Target{Name: "a.test", Port: 80}); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(start))
			}
		})
	}
}

// TestAttemptsAtOnce: of many addresses that take nothing, few are dialled at once, and in
// the end all are.
func TestAttemptsAtOnce(t *testing.T) {
	const most = 4
	var all []netip.Addr
	for i := range byte(dial.MaxAddrs) {
		all = append(all, netip.AddrFrom4([4]byte{1, 1, 1, i}))
	}
	synctest.Test(t, func(t *testing.T) {
		var running, begun, peak atomic.Int64
		d, err := dial.New(dial.Options{Resolver: answer{addrs: all}, Timeout: time.Hour, Connect: func(context.Context, netip.AddrPort) (net.Conn, error) {
			begun.Add(1)
			peak.Store(max(peak.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(10 * time.Second)
			return nil, errors.New("nobody is there")
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.SetOwn(func(netip.Addr) bool { return false })
		if _, _, err := d.Dial(t.Context(), policy.Target{Name: "a.test", Port: 80}); err == nil || begun.Load() != dial.MaxAddrs || peak.Load() != most {
			t.Errorf("%v: %d attempts, %d at once", err, begun.Load(), peak.Load())
		}
	})
}

// TestNotCanonical: a target that nobody can have judged is not even resolved.
func TestNotCanonical(t *testing.T) {
	l := new(lab)
	d := l.dialer(t, dial.Options{Ranges: ranges("0.0.0.0/0", "::/0")})
	for _, target := range []policy.Target{
		{}, {Name: "a.test"}, {Port: 80}, {Name: "A.test", Port: 80}, {Name: "a.test.", Port: 80}, {Name: "127.0.0.1", Port: 80}, {Name: "0x7f000001", Port: 80}, {Name: "127.1", Port: 80}, {Name: "a.test:80", Port: 80}, {Name: "::1", Port: 80},
		{Name: "a.test", Addr: addrs("1.1.1.1")[0], Port: 80}, {Addr: addrs("::ffff:1.1.1.1")[0], Port: 80}, {Addr: addrs("fe80::1%lo")[0], Port: 80}, {Name: "b\u00fccher.test", Port: 80},
	} {
		if _, _, err := d.Dial(t.Context(), target); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", target, err)
		}
	}
	if asked, dialed := l.take(); len(asked) > 0 || len(dialed) > 0 {
		t.Errorf("asked for %q, dialled %v", asked, dialed)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []dial.Options{
		{Ranges: []netip.Prefix{{}}}, {Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8")}}, {Ranges: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		{Hosts: []string{""}}, {Hosts: []string{"*.a.test"}}, {Hosts: []string{"a.test:80"}}, {Hosts: []string{"10.0.0.1"}}, {Hosts: []string{"a test"}},
	} {
		if _, err := dial.New(o); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestDialContext(t *testing.T) {
	l := &lab{zone: map[string][]netip.Addr{"a.test": addrs("1.1.1.1"), "b.test": addrs("10.0.0.1")}}
	d := l.dialer(t, dial.Options{})
	if _, err := d.DialContext(t.Context(), "tcp", "A.test:443"); !errors.Is(err, errLab) {
		t.Error(err)
	}
	if _, dialed := l.take(); len(dialed) != 1 || dialed[0].String() != "1.1.1.1:443" {
		t.Errorf("dialled %v", dialed)
	}
	for what, err := range map[string]error{"private": second(d.DialContext(t.Context(), "tcp", "b.test:443")), "udp": second(d.DialContext(t.Context(), "udp", "a.test:443")), "no port": second(d.DialContext(t.Context(), "tcp", "a.test"))} {
		if err == nil || errors.Is(err, errLab) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ net.Conn, err error) error { return err }
