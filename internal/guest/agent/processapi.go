package agent

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/procapi"
	"agentbox/internal/sandbox"
)

// ProcessAPIAddr is where programs in a sandbox that has the process API find it.
var ProcessAPIAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 2024)

// processAPI opens the process API in sandboxes that are to have it. It outlives
// sessions.
type processAPI struct {
	execs    *execs
	files    Files
	ports    Ports
	loopback Loopback

	configuring sync.Mutex // one configuration at a time

	mu       sync.Mutex
	settings apiSettings
	door     *door // nil: it is closed
}

// apiSettings are what the host says of the API; the zero value: there is none.
type apiSettings struct {
	options procapi.Options
	places  int // commands at once
}

func newProcessAPI(m *execs, o Options) *processAPI {
	return &processAPI{execs: m, files: o.Files, ports: o.Ports, loopback: o.Loopback}
}

// configure opens the API, or closes it. With other settings it begins anew.
func (p *processAPI) configure(c *guestv1.GuestConfig) error {
	var s apiSettings
	if a := c.GetProcessApi(); a != nil {
		s.options = procapi.Options{MaxTimeout: time.Duration(max(a.GetMaxTimeoutNs(), 0)), MaxOutput: a.GetMaxOutput()}
		s.places = max(orDefault(c.GetMaxExecs(), sandbox.MaxExecs)/2, 1) // the host has the others
	}
	p.configuring.Lock()
	defer p.configuring.Unlock()
	if s == p.settings {
		return nil
	}
	p.swap(apiSettings{}, nil)
	if s == (apiSettings{}) {
		return nil
	}
	if p.loopback == nil || p.ports == nil || p.files == nil {
		return fmt.Errorf("open the process API: %w", errNoPorts)
	}
	p.swap(s, openDoor(p.loopback, p.ports, procapi.New(newInside(p.execs, p.files, s.places), s.options).Server()))
	return nil
}

// swap puts another door in the place of the one that there is.
func (p *processAPI) swap(s apiSettings, d *door) {
	p.mu.Lock()
	old := p.door
	p.settings, p.door = s, d
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
}

func (p *processAPI) close() { _ = p.configure(nil) } // nothing is opened

// holds reports whether connections to a port are for the API, which is there for
// programs in the sandbox alone.
func (p *processAPI) holds(port uint16) bool {
	if port != ProcessAPIAddr.Port() {
		return false
	}
	p.mu.Lock()
	d := p.door
	p.mu.Unlock()
	return d != nil && d.holds()
}
