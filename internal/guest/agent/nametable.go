package agent

import (
	"errors"
	"net/netip"
	"sync"

	"agentbox/internal/guest"
)

// The addresses that stand for names: 127.64.0.0/10.
var (
	firstAddr = netip.AddrFrom4([4]byte{127, 64, 0, 1})
	addrRange = netip.PrefixFrom(firstAddr, 10).Masked()
)

// maxNames is how many names have an address at once: each costs a listener for
// every port. The one that was asked for longest ago gives way to a new one.
const maxNames = 256

// nameTable gives names addresses and listens there. A name has one for as long
// as it is in the table; an address is not given to another name until all
// others, four million, were.
type nameTable struct {
	o     *outside
	ports []uint16

	mu     sync.Mutex
	names  map[string]*nameEntry
	next   netip.Addr
	clock  uint64 // counts questions
	closed bool
}

type nameEntry struct {
	addr      netip.Addr
	listeners []Listener
	used      uint64 // by the clock
}

func newNameTable(o *outside, ports []uint16) *nameTable {
	return &nameTable{o: o, ports: ports, names: map[string]*nameEntry{}, next: firstAddr}
}

var errNoAddress = errors.New("every port of the address is taken")

// address is that of a name. An error tells that nothing can listen there.
func (t *nameTable) address(name string) (netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return netip.Addr{}, errNoAddress
	}
	t.clock++
	if e := t.names[name]; e != nil {
		e.used = t.clock
		return e.addr, nil
	}
	if len(t.names) >= maxNames {
		t.dropOldest()
	}
	e := &nameEntry{addr: t.next, used: t.clock}
	if t.next = t.next.Next(); !addrRange.Contains(t.next) {
		t.next = firstAddr
	}
	for _, port := range t.ports {
		// A user's own server may have the port on all addresses.
		if l, err := t.o.loopback.Listen(netip.AddrPortFrom(e.addr, port)); err == nil {
			e.listeners = append(e.listeners, l)
			go t.o.accept(l, guest.TunnelHead{Kind: guest.TunnelConnect, Name: name, Port: port})
		}
	}
	if len(e.listeners) == 0 {
		return netip.Addr{}, errNoAddress
	}
	t.names[name] = e
	return e.addr, nil
}

// dropOldest forgets the name that was asked for longest ago. Its connections go
// on.
func (t *nameTable) dropOldest() {
	oldest := ""
	for name, e := range t.names {
		if oldest == "" || e.used < t.names[oldest].used {
			oldest = name
		}
	}
	t.names[oldest].close()
	delete(t.names, oldest)
}

func (e *nameEntry) close() {
	for _, l := range e.listeners {
		_ = l.Close()
	}
}

func (t *nameTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, e := range t.names {
		e.close()
	}
	clear(t.names)
}
