package wire

import (
	"context"
	"net"
	"path/filepath"
	"strconv"

	"agentbox/internal/audit"
	"agentbox/internal/config"
	"agentbox/internal/egress"
	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/journal"
	"agentbox/internal/egress/token"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/telemetry"
)

// What egress has in the data directory.
const (
	egressDir   = "egress"            // the log of connections
	signingKeys = "signing-keys.json" // of the tokens of sandboxes
)

// openEgress opens the way of sandboxes to the network.
func (d *daemon) openEgress(context.Context) (err error) {
	c := &d.cfg.Egress
	d.conns, err = journal.Open(filepath.Join(d.cfg.DataDir, egressDir), audit.Options{MaxFile: c.LogFile, Files: int(c.LogFiles)})
	if err != nil {
		return err
	}
	d.later(d.conns.Close)
	dialer, err := newDialer(c)
	if err != nil {
		return err
	}
	keys, err := token.Open(filepath.Join(d.cfg.DataDir, signingKeys), c.SigningKey, c.KeyOverlap)
	if err != nil {
		return err
	}
	address := ""
	if c.ProxyHost != "" {
		address = net.JoinHostPort(c.ProxyHost, strconv.FormatInt(c.ProxyPort, 10))
	}
	d.out = egress.NewGateway(egress.GatewayOptions{
		Proxy: egress.New(egress.Options{Dialer: dialer, Recorder: recorder{d.conns, d.meter}, Tokens: keys}),
		Keys:  keys, Address: address,
		Full: c.Full, Limits: egress.Limits{Conns: int(c.Connections), BytesPerSecond: c.Rate, Bytes: c.Bytes}, Log: d.hooks.Log,
	})
	d.later(d.out.Close)
	return nil
}

func newDialer(c *config.Egress) (*dial.Dialer, error) {
	o := dial.Options{Hosts: c.PrivateHosts}
	for _, r := range c.AllowRanges {
		p, err := config.ParseNetwork("egress.allow_ranges", r)
		if err != nil {
			return nil, err
		}
		o.Ranges = append(o.Ranges, p)
	}
	return dial.New(o)
}

// recorder keeps records of connections and counts them.
type recorder struct {
	conns *journal.Journal
	meter *telemetry.Core
}

func (r recorder) Record(rec egress.Record) {
	r.conns.Record(rec)
	r.meter.Connected(string(rec.Verdict), rec.BytesUp, rec.BytesDown)
	if rec.Code == egress.CodeToken {
		r.meter.TokenRefused()
	}
}

// tunnels are a gateway's ways as the guest channel knows them.
type tunnels struct{ *egress.Gateway }

func (t tunnels) Open(uid, owner string, n sandbox.Network) client.Tunnel {
	return t.Gateway.Open(uid, owner, n)
}
