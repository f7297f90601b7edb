package wire

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"agentbox/internal/audit"
	"agentbox/internal/cabundle"
	"agentbox/internal/config"
	"agentbox/internal/egress"
	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/journal"
	"agentbox/internal/egress/mint"
	"agentbox/internal/egress/token"
	"agentbox/internal/egress/vault"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/telemetry"
)

// In the data directory:
const (
	egressDir    = "egress"            // the log of connections
	interceptKey = "intercept.key"     // what the authorities of sandboxes follow from
	signingKeys  = "signing-keys.json" // of the tokens of sandboxes
)

// secretsKey encrypts the secrets of owners, in the data directory.
const secretsKey = "secrets.key"

// openSecrets opens what owners keep for requests of their sandboxes.
func (d *daemon) openSecrets(ctx context.Context) (err error) {
	c := &d.cfg.Secrets
	d.secrets, err = vault.Open(ctx, vault.Options{
		Records: d.store, KeyFile: cmp.Or(c.KeyFile, filepath.Join(d.cfg.DataDir, secretsKey)), Make: c.KeyFile == "", PerOwner: int(c.PerOwner), Log: d.hooks.Log,
	})
	return err
}

// openEgress opens the way of sandboxes to the network.
func (d *daemon) openEgress(context.Context) (err error) {
	c := &d.cfg.Egress
	d.conns, err = journal.Open(filepath.Join(d.cfg.DataDir, egressDir), audit.Options{MaxFile: c.LogFile, Files: int(c.LogFiles)}, d.hooks.Log)
	if err != nil {
		return err
	}
	d.later(d.conns.Close)
	d.meter.WatchConnections(d.conns.Lost)
	dialer, err := newDialer(c)
	if err != nil {
		return err
	}
	bundle, roots, err := authorities(c)
	if err != nil {
		return err
	}
	m, err := mint.Open(filepath.Join(d.cfg.DataDir, interceptKey))
	if err != nil {
		return err
	}
	keys, err := token.Open(filepath.Join(d.cfg.DataDir, signingKeys), c.SigningKey, c.KeyOverlap)
	if err != nil {
		return err
	}
	d.out = egress.NewGateway(egress.GatewayOptions{
		Proxy: egress.New(egress.Options{Dialer: dialer, Recorder: recorder{d.conns, d.meter}, Intercept: m, Secrets: d.secrets, Roots: roots, Tokens: keys}),
		Full:  c.Full, Limits: limitsOf(c), Log: d.hooks.Log,
		Trust: cabundle.Raw(bundle), Authorities: m, Keys: keys, Address: calledProxy(c),
	})
	d.later(d.out.Close)
	return nil
}

// authorities are the operator's, and the roots that servers of intercepted
// connections are checked with: this machine's and those; nil: this machine's alone.
func authorities(c *config.Egress) (bundle []*x509.Certificate, roots *x509.CertPool, err error) {
	if bundle, err = cabundle.Load("egress.ca_bundle", c.CABundle); err != nil || len(bundle) == 0 {
		return nil, nil, err
	}
	if roots, err = x509.SystemCertPool(); err != nil {
		return nil, nil, fmt.Errorf("read this machine's certificates: %w", err)
	}
	for _, cert := range bundle {
		roots.AddCert(cert)
	}
	return bundle, roots, nil
}

// calledProxy is how sandboxes with a network of their own call the proxy's
// listener. Empty: there is none.
func calledProxy(c *config.Egress) string {
	if c.ProxyHost == "" {
		return ""
	}
	return net.JoinHostPort(c.ProxyHost, strconv.FormatInt(c.ProxyPort, 10))
}

func newDialer(c *config.Egress) (*dial.Dialer, error) {
	at, err := config.ParseResolver(c.Resolver)
	if err != nil {
		return nil, err
	}
	o := dial.Options{Hosts: c.PrivateHosts, Resolver: dial.NewResolver(at)}
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
	if rec.Open {
		return // it is counted at its end
	}
	r.meter.Connected(string(rec.Verdict), rec.BytesUp, rec.BytesDown)
	if rec.Code == egress.CodeToken {
		r.meter.TokenRefused()
	}
}

// tunnels are a gateway's ways as the guest channel knows them.
type tunnels struct{ *egress.Gateway }

func (t tunnels) Open(sb *sandbox.Sandbox) client.Tunnel { return t.Gateway.Open(sb) }
