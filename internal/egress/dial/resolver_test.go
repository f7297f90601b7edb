package dial_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/net/dns/dnsmessage"

	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/policy"
)

// dnsServer answers from a zone by UDP on the loopback interface and records
// what it is asked.
type dnsServer struct {
	net.PacketConn
	zone map[string][]netip.Addr // 4-in-6 addresses are AAAA records
	done sync.WaitGroup
	mu   sync.Mutex
	log  []string
}

func newDNS(t *testing.T, zone map[string][]netip.Addr) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{PacketConn: conn, zone: zone}
	s.done.Go(s.serve)
	t.Cleanup(func() { _ = conn.Close(); s.done.Wait() })
	return s
}

func (s *dnsServer) addr() netip.AddrPort { return netip.MustParseAddrPort(s.LocalAddr().String()) }

func (s *dnsServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		if out, err := s.answer(m).Pack(); err == nil {
			_, _ = s.WriteTo(out, from)
		}
	}
}

func (s *dnsServer) answer(m dnsmessage.Message) *dnsmessage.Message {
	q := m.Questions[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, q.Name.String())
	m.Response, m.Additionals = true, nil
	all, known := s.zone[strings.TrimSuffix(q.Name.String(), ".")]
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range all {
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return &m
}

func (s *dnsServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := slices.Compact(slices.Sorted(slices.Values(s.log)))
	s.log = nil
	return log
}

// TestResolver: what the real resolver makes of answers, and that it puts nothing
// behind a name.
func TestResolver(t *testing.T) {
	s := newDNS(t, map[string][]netip.Addr{"a.test": addrs("1.1.1.1", "2606:4700::1"), "mapped.test": addrs("::ffff:127.0.0.1"), "empty.test": {}})
	r := dial.NewResolver(s.addr())
	for name, want := range map[string][]netip.Addr{"a.test": addrs("1.1.1.1", "2606:4700::1"), "mapped.test": addrs("127.0.0.1"), "empty.test": nil, "none.test": nil, "intranet": nil} {
		got, err := r.Resolve(t.Context(), name)
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) || (err != nil) != (len(want) == 0) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
		if asked := s.asked(); !slices.Equal(asked, []string{name + "."}) {
			t.Errorf("%s: the server was asked for %q", name, asked)
		}
	}
}

// TestCanary listens where nobody is to come. All spellings and answers that the
// system takes to the loopback interface are tried, over real TCP.
func TestCanary(t *testing.T) {
	canary, err := net.Listen("tcp", ":0") // IPv4 and, where there is one, IPv6
	if err != nil {
		t.Fatal(err)
	}
	visits := make(chan net.Conn)
	var serve sync.WaitGroup
	serve.Go(func() {
		defer close(visits)
		for {
			conn, err := canary.Accept()
			if err != nil {
				return
			}
			visits <- conn
		}
	})
	t.Cleanup(func() { _ = canary.Close(); serve.Wait() })
	port := netip.MustParseAddrPort(canary.Addr().String()).Port()

	zone := map[string][]netip.Addr{"v4.test": addrs("127.0.0.1"), "zero.test": addrs("0.0.0.0"), "v6.test": addrs("::1"), "zero6.test": addrs("::"), "mapped.test": addrs("::ffff:127.0.0.1"), "compat.test": addrs("::7f00:1"), "mixed.test": addrs("1.1.1.1", "127.0.0.1"), "0x7f000001": addrs("127.0.0.1")}
	s := newDNS(t, zone)
	d, err := dial.New(dial.Options{Resolver: dial.NewResolver(s.addr()), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for name := range zone {
		if _, _, err := d.Dial(t.Context(), policy.Target{Name: name, Port: port}); !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, host := range []string{"0.0.0.0", "127.0.0.1", "127.255.255.254", "[::]", "[::1]", "[::ffff:7f00:1]", "[::127.0.0.1]"} {
		target, err := policy.ParseTarget(host, port)
		if err != nil {
			continue
		}
		if _, _, err := d.Dial(t.Context(), target); !errdefs.IsPermissionDenied(err) {
			t.Errorf("%s: %v", host, err)
		}
	}

	open, err := dial.New(dial.Options{Resolver: dial.NewResolver(s.addr()), Ranges: ranges("127.0.0.0/8"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	conn, at, err := open.Dial(t.Context(), policy.Target{Name: "v4.test", Port: port})
	if err != nil || at.Addr() != addrs("127.0.0.1")[0] {
		t.Fatalf("control: %s, %v", at, err)
	}
	defer conn.Close()
	visit := <-visits // the first one: a visit before it would be here instead
	if visit.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Errorf("the canary was visited from %s", visit.RemoteAddr())
	}
	_ = visit.Close()
}
