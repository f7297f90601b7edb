package e2e

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// labNames is the name server of a [netLab], at the addresses that this machine's
// programs ask. It logs each question.
type labNames struct {
	udp []net.PacketConn
	tcp []net.Listener

	mu    sync.Mutex
	zone  map[string][]netip.Addr
	names []string // that were asked for, each once
}

// resolvConf names the servers that a resolver asks.
const resolvConf = "/etc/resolv.conf"

// nameServers are those that the daemon will ask.
func nameServers() (all []string) {
	b, _ := os.ReadFile(resolvConf) // without it the resolver asks this machine
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "nameserver" {
			if at, err := netip.ParseAddr(f[1]); err == nil {
				all = append(all, at.WithZone("").String())
			}
		}
	}
	if len(all) == 0 {
		all = []string{"127.0.0.1"}
	}
	return all
}

func serveNames() (*labNames, error) {
	n := &labNames{zone: map[string][]netip.Addr{}}
	for _, at := range nameServers() {
		at = net.JoinHostPort(at, "53")
		udp, err := net.ListenPacket("udp", at)
		if err != nil {
			return n, errors.Join(err, n.stop())
		}
		n.udp = append(n.udp, udp)
		tcp, err := net.Listen("tcp", at)
		if err != nil {
			return n, errors.Join(err, n.stop())
		}
		n.tcp = append(n.tcp, tcp)
		go n.servePackets(udp)
		go n.serveClients(tcp)
	}
	return n, nil
}

func (n *labNames) stop() (err error) {
	for _, c := range n.udp {
		err = errors.Join(err, c.Close())
	}
	for _, c := range n.tcp {
		err = errors.Join(err, c.Close())
	}
	return err
}

// set gives a name its addresses.
func (n *labNames) set(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zone[name] = nil
	for _, a := range addrs {
		n.zone[name] = append(n.zone[name], netip.MustParseAddr(a))
	}
}

func (n *labNames) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.names)
}

func (n *labNames) servePackets(c net.PacketConn) {
	b := make([]byte, 4096)
	for {
		size, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if a := n.answer(b[:size]); a != nil {
			_, _ = c.WriteTo(a, from)
		}
	}
}

func (n *labNames) serveClients(l net.Listener) {
	accept(l, func(c net.Conn) {
		r := bufio.NewReader(c)
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(r, q); err != nil {
			return
		}
		a := n.answer(q)
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
	})
}

func (n *labNames) answer(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.names, name) {
		n.names = append(n.names, name)
	}
	addrs, known := n.zone[name]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			r.Body = &dnsmessage.AResource{A: a.As4()}
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, r)
	}
	b, _ := m.Pack() // what was unpacked can be packed
	return b
}
