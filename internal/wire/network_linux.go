package wire

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"

	"agentbox/internal/cli"
	"agentbox/internal/config"
	"agentbox/internal/egress"
	"agentbox/internal/egress/mint"
	"agentbox/internal/sandbox"
)

// Network opens the way out of the one sandbox of this process. Its user may reach
// everything, so the sandbox may have the whole network, too. nil: n is none.
func Network(c *config.Egress, n sandbox.Network) (cli.Network, error) {
	dialer, err := newDialer(c)
	if err != nil {
		return nil, err
	}
	_, roots, err := authorities(c)
	if err != nil {
		return nil, err
	}
	secret := make([]byte, 32) // nothing outlives this process
	_, _ = rand.Read(secret)   // it does not fail
	m := mint.New(secret)
	seen := &denials{}
	out := egress.NewGateway(egress.GatewayOptions{
		Proxy: egress.New(egress.Options{Dialer: dialer, Recorder: seen, Intercept: m, Roots: roots}),
		Full:  true, Limits: limitsOf(c), Authorities: m,
	})
	if err := out.Check(n); err != nil || !n.On() {
		return nil, err
	}
	own := &sandbox.Sandbox{UID: ownName, Network: n}
	return &ownNetwork{Way: out.Open(own), trust: out.Trust(own), denials: seen, gateway: out}, nil
}

func limitsOf(c *config.Egress) egress.Limits {
	return egress.Limits{Conns: int(c.Connections), BytesPerSecond: c.Rate, Bytes: c.Bytes}
}

// ownName is what the gateway calls the sandbox of this process.
const ownName = "run"

// ownNetwork is that of agentbox run.
type ownNetwork struct {
	*egress.Way
	*denials
	trust   [][]byte
	gateway *egress.Gateway
}

// Trust implements cli.Network.
func (n *ownNetwork) Trust() [][]byte { return n.trust }

// Close implements cli.Network.
func (n *ownNetwork) Close() error { return n.gateway.Close() }

// maxDenials bounds what is remembered: the sandbox chooses what it asks for.
const maxDenials = 1000

// denials are a recorder that remembers what was denied. The rest is recorded
// nowhere.
type denials struct {
	mu  sync.Mutex
	all []cli.Denied
}

// Record implements egress.Recorder.
func (d *denials) Record(r egress.Record) {
	if r.Verdict != egress.Denied || r.Name == "" && !r.Addr.IsValid() {
		return
	}
	n := cli.Denied{
		Name: r.Name, Addr: r.Addr, Port: r.Port, Reason: r.Reason,
		Unlisted: r.Code == egress.CodeHost, Blocked: r.Code == egress.CodeAddress, Times: 1,
	}
	if n.Name != "" && !n.Blocked {
		n.Addr = netip.Addr{} // which of its addresses it was plays no part
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o cli.Denied) bool {
		o.Times = n.Times
		return o == n
	})
	switch {
	case i >= 0:
		d.all[i].Times++
	case len(d.all) < maxDenials:
		d.all = append(d.all, n)
	}
}

// Denied implements cli.Network.
func (d *denials) Denied() []cli.Denied {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}
