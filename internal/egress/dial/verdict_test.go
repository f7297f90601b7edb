package dial_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

// TestVerdicts runs generated hosts through policy and dialler and compares what
// was resolved and dialled with what the slow matcher of oracle_test.go expects.
func TestVerdicts(t *testing.T) {
	hosts := 100_000
	if testing.Short() {
		hosts = 10_000
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("AGENTBOX_SEED"), strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("AGENTBOX_SEED=%d", seed)
	g := &generator{rand.New(rand.NewPCG(seed, 0))}
	var allowed, dialed, differ int
	for n := 0; n < hosts && differ < 10; {
		allow, o := g.allow(), g.operator()
		p := compile(t, policy.Spec{Mode: policy.Allowlist, Allow: allow})
		l := new(lab)
		d := l.dialer(t, o)
		for range 200 {
			n++
			host := g.host()
			l.every = g.answers()
			err := reach(t.Context(), p, d, host, 443)
			asked, tried := l.take()
			slices.SortFunc(tried, netip.AddrPort.Compare)
			wantAsked, wantTried := slow(allow, o, l.every, host)
			if fmt.Sprint(asked) != fmt.Sprint(wantAsked) || !slices.Equal(tried, wantTried) || (len(tried) > 0) != errors.Is(err, errLab) {
				differ++
				t.Errorf("%q with %q, operator %v %q, answer %v: %v; asked for %q, dialled %v; the oracle says %q, %v", host, allow, o.Ranges, o.Hosts, l.every, err, asked, tried, wantAsked, wantTried)
			}
			allowed += min(len(wantAsked), 1)
			dialed += min(len(wantTried), 1)
		}
	}
	t.Logf("%d hosts: %d names were resolved, %d hosts dialled, %d differ", hosts, allowed, dialed, differ)
	if allowed < hosts/50 || dialed < hosts/50 {
		t.Error("the generator makes hardly anything that is allowed")
	}
}

type generator struct{ *rand.Rand }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

var (
	names = []string{"a.test", "b.test", "x.a.test", "y.x.a.test", "xa.test", "test", "c.d.test", "d.test", "cafe", "b\u00fccher.test", "xn--bcher-kva.test", "x.b\u00fccher.test", "localhost", "x.localhost", "1e1.test", "127.0.0.1.a.test", "a_b.test", "a--b.test"}
	pool  = []string{"1.1.1.1", "8.8.8.8", "2606:4700::1111", "2001:4860::8888", "9.9.9.9", "10.1.2.3", "10.2.0.1", "127.0.0.1", "0.0.0.0", "169.254.169.254", "169.254.1.1", "100.64.0.1", "192.168.1.1", "172.20.0.1", "224.0.0.1", "255.255.255.255", "198.51.100.10", "198.18.0.1", "240.0.0.1", "192.0.0.8", "::1", "::", "fd00::5", "fe80::1", "ff02::1", "64:ff9b::a01:203", "2002:a01:203::1", "2001::1", "2001:db8::1", "::ffff:1.1.1.1", "::a01:203", "fec0::1", "100::1", "168.63.129.16"}
)

// allow makes an allow-list of entries that can be compiled.
func (g *generator) allow() []string {
	var all []string
	for range 4 + g.IntN(12) {
		host := pick(g, names...)
		switch g.IntN(8) {
		case 0:
			all = append(all, pick(g, "10.0.0.0/8", "1.1.1.0/24", "8.8.8.8", "127.0.0.0/8", "2606:4700::/32", "10.1.2.3:22", "[2001:db8::/32]:443", "0x.test", "198.51.100.0/24", "[::1]:443", "169.254.169.254"))
			continue
		case 1, 2, 3:
			host = "*." + pick(g, "a.test", "x.a.test", "d.test", "b\u00fccher.test")
		case 4:
			host = g.flip(host)
		}
		switch g.IntN(5) {
		case 0:
			host += pick(g, ":22", ":443", ":80", ":8443")
		case 1:
			host += "."
		}
		if !strings.ContainsAny(host, ".:") { // else a preset
			host += "."
		}
		all = append(all, host)
	}
	return all
}

func (g *generator) operator() dial.Options {
	var o dial.Options
	if g.IntN(2) == 0 {
		o.Ranges = ranges(pick(g, "10.1.0.0/16", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "169.254.169.254/32", "0.0.0.0/0", "::/0", "fd00::/8", "198.51.100.0/24", "64:ff9b::/96", "0.0.0.0/8", "::1/128"))
	}
	if g.IntN(2) == 0 {
		o.Hosts = []string{pick(g, "a.test", "X.a.test.", "d.test", "b\u00fccher.test")}
	}
	return o
}

// host makes what a client may ask for.
func (g *generator) host() string {
	host := pick(g, names...)
	switch g.IntN(10) {
	case 0:
		host = g.literal()
	case 1:
		host = g.junk(host)
	case 2, 3:
		host = pick(g, "z", "z.y", "\u00fc", "-", "0x1", "xn--", "*", "1", "xn--bcher-kva") + "." + host
	case 4:
		host = g.flip(host)
	}
	switch g.IntN(8) {
	case 0:
		host += "."
	case 1:
		host += pick(g, "..", ".1", ".0x7f", ".example", "@a.test", "%00", " ", "\x00", "/", "#", "\u3002")
	case 2:
		host += pick(g, ":22", ":80", ":443", ":8443", ":0", ":65536", ":", ":080", ":a", ":443:443", ".:443", ":+80")
	case 3:
		host = pick(g, "a.test@", "http://", " ", "[", ".", "//") + host
	}
	return host
}

// literal makes an address in some spelling.
func (g *generator) literal() string {
	a := netip.MustParseAddr(pick(g, pool...))
	if g.IntN(2) == 0 { // any address at all
		if g.IntN(2) == 0 {
			a = netip.AddrFrom4([4]byte{byte(g.IntN(256)), byte(g.IntN(256)), byte(g.IntN(256)), byte(g.IntN(256))})
		} else {
			b := a.As16()
			for range 4 {
				b[g.IntN(16)] = byte(g.IntN(256))
			}
			a = netip.AddrFrom16(b)
		}
	}
	if !a.Is4() {
		return pick(g, "["+a.String()+"]", "["+a.StringExpanded()+"]", "["+a.String()+"]:443", a.String(), "["+a.String()+"%1]")
	}
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return pick(g, a.String(), a.String(), a.String()+":443", fmt.Sprint(v), fmt.Sprintf("0x%x", v), fmt.Sprintf("0%o", v), fmt.Sprintf("%d.%d", b[0], v&0xffffff), fmt.Sprintf("0x%x.%d.%d.%d", b[0], b[1], b[2], b[3]),
		fmt.Sprintf("%d.%d.%d.0%o", b[0], b[1], b[2], b[3]), fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3]), a.String()+".", fmt.Sprintf("[::ffff:%s]", a), fmt.Sprintf("[%s]", a))
}

// junk puts a character somewhere into a name that is not internationalised: the
// oracle could not tell what became of it.
func (g *generator) junk(s string) string {
	if strings.Contains(s, "xn--") || strings.Contains(s, "\u00fc") {
		return s
	}
	at := g.IntN(len(s) + 1)
	return s[:at] + pick(g, "\u00ad", "\u200d", "\uff41", "\u3002", "-", "_", ".", "%", "@", "\x00", " ", "\xff", "\u212a", "0", "x", "A", "\r\n", "\\", ",") + s[at:]
}

// flip changes the case of letters.
func (g *generator) flip(s string) string {
	b := []byte(s)
	for i, c := range b {
		if (c|0x20) >= 'a' && (c|0x20) <= 'z' && g.IntN(2) == 0 {
			b[i] ^= 0x20
		}
	}
	return string(b)
}

// answers makes what the resolver says.
func (g *generator) answers() []netip.Addr {
	all := []netip.Addr{}
	usual := 5 // the public ones, which come first
	if g.IntN(2) == 0 {
		usual = len(pool)
	}
	for range g.IntN(4) {
		all = append(all, netip.MustParseAddr(pick(g, pool[:usual]...)))
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
