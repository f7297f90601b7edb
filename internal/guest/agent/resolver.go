package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// resolverAddr is where programs ask for addresses: what systemd's resolver uses,
// too, and a user's server for names would not.
var resolverAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 53}), 53)

const (
	// maxQuestion is the longest question that is read: more than one name takes.
	maxQuestion = 1232 // what is safe over UDP without fragments (DNS flag day 2020)
	// maxClients is how many clients may ask over TCP at once, clientTime how long
	// each may be idle.
	maxClients = 16
	clientTime = 10 * time.Second
	// askTime bounds a question to the host: what programs wait for before they
	// ask again.
	askTime = 5 * time.Second
	// nameTTL is how long a program may remember an answer, in seconds.
	nameTTL = 60
)

// resolver answers questions for names with addresses of the loopback interface,
// whose connections it carries to the host.
type resolver struct {
	ports   []uint16
	ask     func(ctx context.Context, name string) (bool, error)
	names   *nameTable
	udp     net.PacketConn
	tcp     Listener
	asking  chan struct{} // places of questions
	clients chan struct{} // places of clients over TCP
}

// resolverPorts are those of an address that stands for a name.
func resolverPorts(c *guestv1.Network) []uint16 {
	const most = 16
	ports := []uint16{80, 443}
	for _, p := range c.GetPorts() {
		if p > 0 && p < 1<<16 && len(ports) < most && !slices.Contains(ports, uint16(p)) {
			ports = append(ports, uint16(p))
		}
	}
	return ports
}

func newResolver(o *outside, ports []uint16) (*resolver, error) {
	r := &resolver{
		ports: ports, ask: o.mayResolve, names: newNameTable(o, ports),
		asking: make(chan struct{}, guest.MaxTunnelNames), clients: make(chan struct{}, maxClients),
	}
	var err error
	if r.udp, err = o.loopback.ListenPacket(resolverAddr); err != nil {
		return nil, err
	}
	if r.tcp, err = o.loopback.Listen(resolverAddr); err != nil {
		return nil, errors.Join(err, r.udp.Close())
	}
	go r.servePackets()
	go r.serveClients()
	return r, nil
}

func (r *resolver) close() {
	_ = r.udp.Close()
	_ = r.tcp.Close()
	r.names.close()
}

func (r *resolver) servePackets() {
	b := make([]byte, maxQuestion)
	for {
		n, from, err := r.udp.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		select {
		case r.asking <- struct{}{}:
		default:
			continue // who asked asks again
		}
		q := slices.Clone(b[:n])
		go func() {
			defer func() { <-r.asking }()
			if a := r.answer(q); a != nil {
				_, _ = r.udp.WriteTo(a, from)
			}
		}()
	}
}

func (r *resolver) serveClients() {
	for {
		c, err := r.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		select {
		case r.clients <- struct{}{}:
			go func() {
				defer func() { <-r.clients }()
				defer c.Close()
				r.serveClient(c)
			}()
		default:
			_ = c.Close()
		}
	}
}

// serveClient answers questions with their length before them (RFC 7766).
func (r *resolver) serveClient(c PortConn) {
	for {
		_ = c.SetDeadline(time.Now().Add(clientTime))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(q) > maxQuestion {
			return
		}
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		r.asking <- struct{}{}
		a := r.answer(q)
		<-r.asking
		if a == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

// answer is the answer to a question, nil if it is none that can be answered.
func (r *resolver) answer(question []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil || h.Response {
		return nil
	}
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}}
	q, err := p.Question()
	if err != nil {
		a.RCode = dnsmessage.RCodeFormatError
		return pack(&a)
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		a.RCode = dnsmessage.RCodeFormatError
		return pack(&a)
	}
	a.Questions = []dnsmessage.Question{q}
	if h.OpCode != 0 {
		a.RCode = dnsmessage.RCodeNotImplemented
		return pack(&a)
	}
	var addr netip.Addr
	addr, a.RCode = r.find(q)
	if addr.IsValid() {
		a.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: nameTTL},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	return pack(&a)
}

func pack(m *dnsmessage.Message) []byte {
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// find is the address of what was asked for, if there is one. There are none of
// IPv6; a program that asks for one is told that the name is there.
func (r *resolver) find(q dnsmessage.Question) (netip.Addr, dnsmessage.RCode) {
	none := netip.Addr{}
	if q.Class != dnsmessage.ClassINET || q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA {
		return none, dnsmessage.RCodeRefused
	}
	name := nameOf(q.Name)
	if !guest.ValidName(name) {
		return none, dnsmessage.RCodeNameError
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	allowed, err := r.ask(ctx, name)
	switch {
	case err != nil:
		return none, dnsmessage.RCodeServerFailure
	case !allowed:
		return none, dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeAAAA:
		return none, dnsmessage.RCodeSuccess
	}
	addr, err := r.names.address(name)
	if err != nil {
		return none, dnsmessage.RCodeServerFailure
	}
	return addr, dnsmessage.RCodeSuccess
}

// nameOf is a name as the host takes it: ASCII in lower case, no dot at the end.
func nameOf(n dnsmessage.Name) string {
	b := slices.Clone(n.Data[:n.Length])
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	if len(b) > 0 && b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	return string(b)
}
