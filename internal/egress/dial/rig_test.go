package dial_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab records what is asked and dialled. Nothing in it leaves the process, and
// every connection is refused, so that all addresses of a target are tried.
type lab struct {
	mu     sync.Mutex
	zone   map[string][]netip.Addr
	every  []netip.Addr // for names that are not in zone
	asked  []string
	dialed []netip.AddrPort
}

var errLab = errors.New("the lab takes no connections")

func (l *lab) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, name)
	if addrs, ok := l.zone[name]; ok {
		return addrs, nil
	}
	if l.every != nil {
		return l.every, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, Server: "192.0.2.53:53", IsNotFound: true}
}

func (l *lab) connect(_ context.Context, to netip.AddrPort) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialed = append(l.dialed, to)
	return nil, errLab
}

// take gives the records and begins new ones.
func (l *lab) take() (asked []string, dialed []netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, dialed, l.asked, l.dialed = l.asked, l.dialed, nil, nil
	return asked, dialed
}

// dialer of the lab, on a machine without addresses of its own.
func (l *lab) dialer(t testing.TB, o dial.Options) *dial.Dialer {
	t.Helper()
	o.Resolver, o.Connect = l, l.connect
	d, err := dial.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d.SetOwn(func(netip.Addr) bool { return false })
	return d
}

// reach does for a client what the proxy does: read, judge, dial.
func reach(ctx context.Context, p *policy.Policy, d *dial.Dialer, host string, port uint16) error {
	t, err := policy.ParseTarget(host, port)
	if err != nil {
		return err
	}
	if v := p.Connect(t); !v.Allow {
		return errors.New(v.Reason)
	}
	conn, _, err := d.Dial(ctx, t)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func compile(t testing.TB, s policy.Spec) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func addrs(all ...string) []netip.Addr {
	var list []netip.Addr
	for _, a := range all {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func ranges(all ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, r := range all {
		list = append(list, netip.MustParsePrefix(r))
	}
	return list
}

// ports puts a port behind addresses and sorts them.
func ports(port uint16, all ...netip.Addr) []netip.AddrPort {
	var list []netip.AddrPort
	for _, a := range all {
		list = append(list, netip.AddrPortFrom(a, port))
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return list
}
