package dial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

const metadataName = "metadata.lab.test"

// net05 are spellings of 127.0.0.1, 169.254.169.254 and 10.66.0.5.
var net05 = []string{
	"127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "0", "0.0.0.0", "2130706433", "017700000001", "0x7f000001", "0x7F.0.0.1", "0177.0.0.1", "127.0x0.0.1", "127.000.000.001", "127.0.0.1.",
	"localhost", "LOCALHOST", "localhost.", "foo.localhost", "localhost.localdomain", "loop.lab.test", "127。0。0。1", "①②⑦.0.0.1", "127.0.0.1%20",
	"169.254.169.254", "169.254.43518", "169.16689662", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", metadataName,
	"10.4325381", "172097541", "0x0a420005",
}

// b138 are those of the field reports, and others that some resolver knows.
var b138 = []string{
	"2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "127.0.0.1.",
	"0x7f.1", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fec0::1]", "[fd00:66::5]", "[::ffff:0:127.0.0.1]", "[ff02::1]",
	"10.66.0.5", "100.64.0.1", "192.168.1.1", "172.16.0.1", "255.255.255.255", "224.0.0.1", "240.0.0.1", "127.0.0.1:80@127.0.0.1", "0x", "127.0.0.0x1", "0b1.0.0.1", "１２７.0.0.1", "127.0.0.1\x00.allowed.test", "127.0.0.1 ", "::1", "0:0:0:0:0:0:0:1", "100.100.100.200", "168.63.129.16", "[fd00:ec2::254]",
}

func (l *lab) trap() *lab {
	l.zone = map[string][]netip.Addr{
		"loop.lab.test": addrs("127.0.0.1"), metadataName: addrs("169.254.169.254"), "localhost": addrs("127.0.0.1"), "foo.localhost": addrs("127.0.0.1"), "localhost.localdomain": addrs("127.0.0.1"),
		"allowed.test": addrs("1.1.1.1"), // the control
	}
	for _, s := range slices.Concat(net05, b138) { // a resolver that knows them all
		if name := strings.ToLower(s); l.zone[name] == nil {
			l.zone[name] = addrs("127.0.0.1")
		}
	}
	return l
}

// TestNET05_Spellings: none reaches the target, whatever the policy says.
func TestNET05_Spellings(t *testing.T) {
	if len(net05) != 34 {
		t.Fatalf("there are %d spellings, want 34", len(net05))
	}
	unreachable(t, net05)
}

func TestB138_Spellings(t *testing.T) { unreachable(t, b138) }

// unreachable asks for hosts under a policy that allows everything, and one that
// allows what they mean.
func unreachable(t *testing.T, spellings []string) {
	t.Helper()
	l := new(lab).trap()
	d := l.dialer(t, dial.Options{})
	policies := map[string]*policy.Policy{
		"full": compile(t, policy.Spec{Mode: policy.Full}),
		"list": compile(t, policy.Spec{Allow: []string{"allowed.test", "*.lab.test", "localhost", "127.0.0.0/8", "169.254.0.0/16", "10.0.0.0/8", "[::1]", "64:ff9b::/96", "2002::/16"}}),
	}
	for what, p := range policies {
		for _, spelling := range spellings {
			for _, port := range []string{"", ":80", ":443"} {
				if err := reach(t.Context(), p, d, spelling+port, 443); err == nil || errors.Is(err, errLab) {
					t.Errorf("%s: %q: %v", what, spelling+port, err)
				}
			}
		}
		asked, dialed := l.take()
		if len(dialed) > 0 {
			t.Errorf("%s: dialled %v", what, dialed)
		}
		for _, name := range asked {
			if name != "loop.lab.test" && name != metadataName {
				t.Errorf("%s: the resolver was asked for %q", what, name)
			}
		}
		if err := reach(t.Context(), p, d, "allowed.test", 443); !errors.Is(err, errLab) {
			t.Errorf("%s: control: %v", what, err)
		}
		if _, dialed := l.take(); !slices.Equal(dialed, ports(443, addrs("1.1.1.1")...)) {
			t.Errorf("%s: control: dialled %v", what, dialed)
		}
	}
}

// TestNET07_AddressesOfNames: an allowed name is judged again by its addresses.
// An exact name opens private networks, nothing else.
func TestNET07_AddressesOfNames(t *testing.T) {
	judged(t, []resolved{
		{"10.66.0.5", "private", true}, {"127.0.0.1", "loopback", false}, {"169.254.169.254", "metadata", false}, {"fd00:66::5", "private", true}, {"100.64.0.1", "shared", true}, {"0.0.0.0", "unspecified", false},
		{"172.31.255.255", "private", true}, {"::", "unspecified", false}, {"::ffff:127.0.0.1", "IPv4 in IPv6", false}, {"::ffff:1.1.1.1", "IPv4 in IPv6", false}, {"64:ff9b::101:101", "NAT64", false}, {"2002:101:101::1", "6to4", false}, {"fd00:ec2::254", "metadata", false},
	})
}

func TestB136_AddressesOfNames(t *testing.T) {
	judged(t, []resolved{
		{"169.254.169.254", "metadata", false}, {"127.0.0.1", "loopback", false}, {"10.1.2.3", "private", true}, {"192.168.1.1", "private", true}, {"100.64.0.1", "shared", true}, {"0.0.0.0", "unspecified", false}, {"::1", "loopback", false}, {"fe80::1", "link-local", false}, {"fc00::1", "private", true},
	})
}

// resolved is an address of an allowed name, its class, and whether the operator's
// naming of that host opens it.
type resolved struct {
	addr, class string
	opens       bool
}

// judged asks for a name that has each address, alone and beside a public one.
func judged(t *testing.T, cases []resolved) {
	t.Helper()
	l := &lab{zone: map[string][]netip.Addr{}}
	p := compile(t, policy.Spec{Allow: []string{"allowed.test"}})
	shut, open := l.dialer(t, dial.Options{}), l.dialer(t, dial.Options{Hosts: []string{"Allowed.Test."}})
	other := l.dialer(t, dial.Options{Hosts: []string{"test", "x.allowed.test"}})
	for _, c := range cases {
		for _, mixed := range []bool{false, true} {
			l.zone["allowed.test"] = addrs(c.addr)
			if mixed { // one address that is refused refuses all
				l.zone["allowed.test"] = addrs("1.1.1.1", c.addr)
			}
			for what, d := range map[string]*dial.Dialer{"shut": shut, "other": other, "open": open} {
				err := reach(t.Context(), p, d, "allowed.test", 443)
				_, dialed := l.take()
				if c.opens && what == "open" {
					if want := ports(443, l.zone["allowed.test"]...); !errors.Is(err, errLab) || !slices.Equal(sorted(dialed), want) {
						t.Errorf("%s %s: %v, dialled %v, want %v", what, c.addr, err, dialed, want)
					}
					continue
				}
				var refused *dial.RefusedError
				if !errors.As(err, &refused) || refused.Class != c.class || refused.Addr != netip.MustParseAddr(c.addr) || refused.Target.Name != "allowed.test" || !errdefs.IsPermissionDenied(err) {
					t.Errorf("%s %s: %v, want a refusal because it is %s", what, c.addr, err, c.class)
				} else if !strings.HasPrefix(err.Error(), "blocked address") || strings.Contains(err.Error(), c.addr) {
					t.Errorf("%s: text %q", c.addr, err)
				}
				if len(dialed) > 0 {
					t.Errorf("%s %s: dialled %v", what, c.addr, dialed)
				}
			}
		}
	}
}

func sorted(dialed []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(dialed, netip.AddrPort.Compare)
	return dialed
}

// TestB140_ListedByTheCaller: a caller's entry opens nothing that the operator
// did not open.
func TestB140_ListedByTheCaller(t *testing.T) {
	l := new(lab)
	p := compile(t, policy.Spec{Allow: []string{"127.0.0.1", "169.254.169.254", "10.0.0.0/8", "[::1]"}})
	shut, open := l.dialer(t, dial.Options{}), l.dialer(t, dial.Options{Ranges: ranges("10.9.0.0/16")})
	for _, host := range []string{"127.0.0.1", "169.254.169.254", "10.9.0.1", "[::1]"} {
		if err := reach(t.Context(), p, shut, host, 80); !errdefs.IsPermissionDenied(err) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, dialed := l.take(); len(dialed) > 0 {
		t.Errorf("dialled %v", dialed)
	}
	for host, want := range map[string]bool{"10.9.0.1": true, "10.8.0.1": false, "11.0.0.1": false} {
		if err := reach(t.Context(), p, open, host, 80); errors.Is(err, errLab) != want {
			t.Errorf("with a range: %s: %v", host, err)
		}
	}
}

// TestRanges: what an operator's range opens.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		rng, addr string
		open      bool
	}{
		{"10.0.0.0/8", "10.255.0.1", true}, {"10.0.0.0/8", "11.0.0.1", true}, {"10.0.0.0/8", "172.16.0.1", false}, {"0.0.0.0/0", "10.0.0.1", true}, {"::/0", "fd00::1", true}, {"::/0", "10.0.0.1", false},
		{"198.51.100.0/24", "198.51.100.10", true}, {"198.18.0.0/15", "198.19.0.1", true}, {"240.0.0.0/4", "250.0.0.1", true}, {"fec0::/10", "fec0::1", true}, {"4000::/3", "5000::1", true}, {"2001:db8::/32", "2001:db8::1", true},
		// The host's own are not opened by the way.
		{"0.0.0.0/0", "127.0.0.1", false}, {"127.0.0.0/8", "127.0.0.1", true}, {"127.0.0.0/9", "127.0.0.1", true}, {"126.0.0.0/7", "127.0.0.1", false}, {"::1/128", "::1", true}, {"::/0", "::1", false},
		{"0.0.0.0/0", "169.254.1.1", false}, {"169.254.0.0/16", "169.254.1.1", true}, {"169.254.0.0/16", "169.254.169.254", false}, {"169.254.169.254/32", "169.254.169.254", true}, {"100.64.0.0/10", "100.100.100.200", false}, {"168.63.0.0/16", "168.63.129.16", false}, {"fe80::/10", "fe80::1", true}, {"::/0", "fe80::1", false}, {"fd00:ec2::254/128", "fd00:ec2::254", true},
		// There is no host behind these.
		{"0.0.0.0/32", "0.0.0.0", false}, {"::/128", "::", false}, {"255.255.255.255/32", "255.255.255.255", false}, {"224.0.0.0/4", "224.0.0.1", false}, {"ff00::/8", "ff02::1", false}, {"64:ff9b::/96", "64:ff9b::a00:1", false}, {"2002::/16", "2002:a00:1::", false}, {"2001::/32", "2001::1", false}, {"::/96", "::7f00:1", false},
		// Public ones need no range.
		{"10.0.0.0/8", "1.1.1.1", true}, {"10.0.0.0/8", "2606:4700::1111", true},
	} {
		l := &lab{zone: map[string][]netip.Addr{"a.test": addrs(c.addr)}}
		_, _, err := l.dialer(t, dial.Options{Ranges: ranges(c.rng)}).Dial(t.Context(), policy.Target{Name: "a.test", Port: 80})
		if errors.Is(err, errLab) != c.open || errdefs.IsPermissionDenied(err) == c.open {
			t.Errorf("range %s: %s: %v, want open %v", c.rng, c.addr, err, c.open)
		}
	}
}

// TestThisHost: addresses of the machine itself are opened one by one, be they
// public or in an open range.
func TestThisHost(t *testing.T) {
	for _, c := range []struct {
		addr string
		o    dial.Options
		open bool
	}{
		{"1.1.1.1", dial.Options{}, false}, {"1.1.1.1", dial.Options{Ranges: ranges("1.0.0.0/8")}, false}, {"1.1.1.1", dial.Options{Ranges: ranges("1.1.1.1/32")}, true}, {"1.1.1.1", dial.Options{Hosts: []string{"a.test"}}, false},
		{"10.0.0.1", dial.Options{Ranges: ranges("10.0.0.0/8")}, false}, {"10.0.0.1", dial.Options{Ranges: ranges("10.0.0.0/8", "10.0.0.1/32")}, true}, {"10.0.0.1", dial.Options{Hosts: []string{"a.test"}}, false},
		{"127.0.0.1", dial.Options{Ranges: ranges("127.0.0.0/8")}, true},
	} {
		l := &lab{zone: map[string][]netip.Addr{"a.test": addrs(c.addr)}}
		d := l.dialer(t, c.o)
		d.SetOwn(func(a netip.Addr) bool { return a == netip.MustParseAddr(c.addr) })
		_, _, err := d.Dial(t.Context(), policy.Target{Name: "a.test", Port: 80})
		if errors.Is(err, errLab) != c.open {
			t.Errorf("%s with %+v: %v, want open %v", c.addr, c.o, err, c.open)
		}
	}
	for addr, own := range map[string]bool{"127.0.0.1": true, "255.255.255.255": false} {
		if dial.IsOwn(netip.MustParseAddr(addr)) != own {
			t.Errorf("IsOwn(%s) is not %v", addr, own)
		}
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifaces {
		all, err := i.Addrs()
		if err != nil || i.Flags&net.FlagRunning == 0 {
			continue
		}
		for _, a := range all { // IPv6 addresses may not be in use yet
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !dial.IsOwn(p.Addr()) {
				t.Errorf("IsOwn(%s) is false", p.Addr())
			}
		}
	}
}

// changing answers something else each time it is asked.
type changing struct{ asked int }

func (c *changing) Resolve(context.Context, string) ([]netip.Addr, error) {
	c.asked++
	if c.asked == 1 {
		return addrs("1.1.1.1"), nil
	}
	return addrs("127.0.0.1"), nil
}

// TestRebinding: the resolver is asked once, and what it said then is dialled.
func TestRebinding(t *testing.T) {
	r, l := new(changing), new(lab)
	d, err := dial.New(dial.Options{Resolver: r, Connect: l.connect})
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, policy.Spec{Allow: []string{"rebind.test"}})
	if err := reach(t.Context(), p, d, "rebind.test", 80); !errors.Is(err, errLab) {
		t.Errorf("first: %v", err)
	}
	if _, dialed := l.take(); r.asked != 1 || !slices.Equal(dialed, ports(80, addrs("1.1.1.1")...)) {
		t.Errorf("asked %d times, dialled %v", r.asked, dialed)
	}
	if err := reach(t.Context(), p, d, "rebind.test", 80); !errdefs.IsPermissionDenied(err) {
		t.Errorf("second: %v", err)
	}
	if _, dialed := l.take(); r.asked != 2 || len(dialed) > 0 {
		t.Errorf("asked %d times, dialled %v", r.asked, dialed)
	}
}

// TestB142_DeniedNamesAreNotResolved: no name that is denied reaches the resolver.
func TestB142_DeniedNamesAreNotResolved(t *testing.T) {
	l := &lab{zone: map[string][]netip.Addr{"allowed.test": addrs("1.1.1.1")}}
	d := l.dialer(t, dial.Options{})
	p := compile(t, policy.Spec{Allow: []string{"allowed.test", "*.ok.test"}})
	for _, host := range []string{"s3cret.exfil.test", "s3cret.exfil.test:443", "allowed.test.exfil.test", "s3cret.allowed.test", "allowed.test:53", "ok.test", "cafe", "2130706433", "0x7f000001", "127.1", "localhost", "s3cret.allowed.test@exfil.test"} {
		if err := reach(t.Context(), p, d, host, 443); err == nil {
			t.Errorf("%s is allowed", host)
		}
	}
	if asked, dialed := l.take(); len(asked) > 0 || len(dialed) > 0 {
		t.Errorf("asked for %q, dialled %v", asked, dialed)
	}
	for _, host := range []string{"allowed.test", "s3cret.ok.test"} { // the control: the record works
		_ = reach(t.Context(), p, d, host, 443)
		if asked, _ := l.take(); !slices.Equal(asked, []string{host}) {
			t.Errorf("control: asked for %q, want %q", asked, host)
		}
	}
}

// TestManyAddresses: a long answer is cut, and what is dialled was checked.
func TestManyAddresses(t *testing.T) {
	var many []netip.Addr
	for i := range 5000 {
		many = append(many, netip.AddrFrom4([4]byte{8, 8, byte(i >> 8), byte(i)}))
	}
	l := &lab{zone: map[string][]netip.Addr{"a.test": many}}
	if _, _, err := l.dialer(t, dial.Options{}).Dial(t.Context(), policy.Target{Name: "a.test", Port: 80}); !errors.Is(err, errLab) {
		t.Error(err)
	}
	if _, dialed := l.take(); !slices.Equal(dialed, ports(80, many[:dial.MaxAddrs]...)) {
		t.Errorf("dialled %d addresses: %v", len(dialed), dialed)
	}
}

// TestAttempts: the families take turns, the next attempt begins when one fails
// or takes long, and the first connection wins.
func TestAttempts(t *testing.T) {
	const slow, fast = "2606:4700::1", "8.8.4.4"
	synctest.Test(t, func(t *testing.T) {
		begun := map[string]time.Duration{}
		start := time.Now()
		var mu sync.Mutex
		var pipes []net.Conn
		d, err := dial.New(dial.Options{
			Resolver: &lab{zone: map[string][]netip.Addr{"a.test": addrs(slow, "2606:4700::2", "1.1.1.1", fast)}},
			Connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				begun[to.Addr().String()] = time.Since(start)
				switch to.Addr().String() {
				case slow: // it answers when all is over
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					a, b := net.Pipe()
					pipes = append(pipes, b)
					return a, nil
				case fast:
					a, b := net.Pipe()
					pipes = append(pipes, b)
					return a, nil
				}
				return nil, errLab
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.SetOwn(func(netip.Addr) bool { return false })
		conn, at, err := d.Dial(t.Context(), policy.Target{Name: "a.test", Port: 80})
		if err != nil || at.String() != fast+":80" {
			t.Fatalf("connected to %s, %v", at, err)
		}
		const delay = 250 * time.Millisecond
		want := map[string]time.Duration{slow: 0, "1.1.1.1": delay, "2606:4700::2": delay, fast: delay}
		if fmt.Sprint(begun) != fmt.Sprint(want) {
			t.Errorf("attempts began at %v, want %v", begun, want)
		}
		closed := 0
		for _, p := range pipes {
			_ = p.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := p.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				closed++
			}
		}
		if len(pipes) != 2 || closed != 1 {
			t.Errorf("%d of %d connections are closed, want the late one", closed, len(pipes))
		}
		_ = conn.Close()
	})
}
