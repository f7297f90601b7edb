package agent

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"agentbox/internal/guest"
)

// deafLoopback has listeners to which nobody connects.
type deafLoopback struct{}

func (deafLoopback) Listen(netip.AddrPort) (Listener, error)             { return deaf{}, nil }
func (deafLoopback) ListenPacket(netip.AddrPort) (net.PacketConn, error) { return nil, net.ErrClosed }
func (deafLoopback) ListenAside(netip.AddrPort) (Listener, error)        { return deaf{}, nil }
func (deafLoopback) Taken(netip.AddrPort) (bool, error)                  { return false, nil }
func (deafLoopback) UseResolver(netip.Addr) error                        { return nil }

type deaf struct{}

func (deaf) Accept() (PortConn, error) { return nil, net.ErrClosed }
func (deaf) Close() error              { return nil }

func newTestResolver(asked func(name string)) *resolver {
	return &resolver{
		ask:   func(_ context.Context, name string) (bool, error) { asked(name); return true, nil },
		names: newNameTable(&outside{loopback: deafLoopback{}}, []uint16{443}),
	}
}

func question(name string, of dnsmessage.Type, change func(*dnsmessage.Message)) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: of, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&m)
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// What is no question for an address gets no address, and the host is not asked.
func TestResolverRefuses(t *testing.T) {
	asked := 0
	r := newTestResolver(func(string) { asked++ })
	for what, c := range map[string]struct {
		q    []byte
		want dnsmessage.RCode
	}{
		"text":           {question("a.example.", dnsmessage.TypeTXT, nil), dnsmessage.RCodeRefused},
		"mail":           {question("a.example.", dnsmessage.TypeMX, nil), dnsmessage.RCodeRefused},
		"all":            {question("a.example.", dnsmessage.TypeALL, nil), dnsmessage.RCodeRefused},
		"address's name": {question("1.0.64.127.in-addr.arpa.", dnsmessage.TypePTR, nil), dnsmessage.RCodeRefused},
		"other class":    {question("a.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), dnsmessage.RCodeRefused},
		"an update":      {question("a.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.OpCode = 5 }), dnsmessage.RCodeNotImplemented},
		"two questions":  {question("a.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), dnsmessage.RCodeFormatError},
		"none":           {question("a.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = nil }), dnsmessage.RCodeFormatError},
		"the root":       {question(".", dnsmessage.TypeA, nil), dnsmessage.RCodeNameError},
		"a space":        {question("a b.example.", dnsmessage.TypeA, nil), dnsmessage.RCodeNameError},
	} {
		var m dnsmessage.Message
		if err := m.Unpack(r.answer(c.q)); err != nil || m.RCode != c.want || len(m.Answers) > 0 || m.ID != 7 || !m.Response {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
	if a := r.answer(question("a.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true })); a != nil {
		t.Errorf("an answer is answered with %q", a)
	}
	if asked > 0 {
		t.Errorf("the host was asked %d times", asked)
	}
}

func FuzzResolver(f *testing.F) {
	f.Add(question("a.example.", dnsmessage.TypeA, nil))
	f.Add(question("A.EXAMPLE.", dnsmessage.TypeAAAA, nil))
	f.Add([]byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 192, 12, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, q []byte) {
		r := newTestResolver(func(name string) {
			if !guest.ValidName(name) {
				t.Errorf("the host was asked for %q", name)
			}
		})
		a := r.answer(q)
		if a == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(a); err != nil || !m.Response || len(m.Answers) > 1 || len(a) > len(q)+32 {
			t.Errorf("%q was answered with %q: %v", q, a, err)
		}
	})
}
