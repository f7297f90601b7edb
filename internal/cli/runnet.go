package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"agentbox/internal/config"
	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// Network is the way out of the one sandbox of a process.
type Network interface {
	client.Tunnel
	// Trust are the certificates, DER, that programs must trust besides the image's.
	Trust() [][]byte
	// Denied are the hosts that were refused so far, in order, each once.
	Denied() []Denied
	// Close ends all connections.
	Close() error
}

// Denied is a host that a sandbox was refused.
type Denied struct {
	Name   string     // as it was asked for; empty: an address was
	Addr   netip.Addr // that was asked for or, if Blocked, found and not dialled; not valid: none
	Port   uint16     // 0: only the name was asked for
	Reason string
	// Unlisted: the policy does not name it. Blocked: it has an address that is not
	// public and that nobody opened.
	Unlisted, Blocked bool
	Times             int
}

// networkKeys are the settings of the server that also hold for the networks of
// agentbox run.
var networkKeys = []string{"egress.allow_ranges", "egress.private_hosts", "egress.resolver"}

// networkFlags are the options of agentbox run that stand for a network.
type networkFlags struct {
	wish sandbox.Network
	mode string
}

func (f *networkFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.wish.Allow, "allow", nil, "`HOST` that it may reach: a name, *.name, name:port, range or preset such as python (repeatable; see agentbox egress)")
	fl.StringArrayVar(&f.wish.Intercept, "intercept", nil, "`HOST` whose TLS agentbox ends itself, so that it sees the requests (repeatable; it allows nothing)")
	fl.StringVar(&f.mode, "network", "", "none, allowlist or full, which is all that is public (default: allowlist with --allow, else none)")
	completeWords(cmd, "allow")
	completeWords(cmd, "intercept")
	completeWords(cmd, "network", networkModes...)
	fl.BoolVar(&f.wish.Resolver, "resolver", true, "with a network: let programs that take no proxy reach allowed names, too")
	config.AddFlags(fl, networkKeys...)
}

// open opens the way out, which is to be closed; nil: there is none. Bundle has
// authorities that servers may be of, a path or system.
func (f *networkFlags) open(l *Local, cmd *cobra.Command, bundle string) (Network, error) {
	f.wish.Mode = sandbox.NetworkMode(f.mode)
	if f.mode == "" && len(f.wish.Allow) == 0 && len(f.wish.Intercept) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	loaded, err := (&configFlags{}).load(cmd)
	if err != nil {
		return nil, err
	}
	loaded.Egress.CABundle = bundle
	return l.Network(&loaded.Egress, f.wish)
}

// use gives a sandbox that is to be made the network, if there is one.
func (f *networkFlags) use(n Network, req *local.Request) {
	if n != nil {
		req.Tunnel, req.Resolver, req.Trust = n, f.wish.Resolver, append(req.Trust, n.Trust()...)
	}
}

// maxDenied is how many denied hosts are named at the end of a run.
const maxDenied = 20

// closeNetwork ends the network of a run and says what was denied.
func (a *App) closeNetwork(n Network) {
	if n == nil {
		return
	}
	if err := n.Close(); err != nil {
		a.warn(err)
	}
	all := n.Denied()
	for _, d := range all[:min(len(all), maxDenied)] {
		fmt.Fprintf(a.Stderr, "agentbox: %s\n", visible(d.text()))
	}
	if more := len(all) - maxDenied; more > 0 {
		fmt.Fprintf(a.Stderr, "agentbox: denied: %d more\n", more)
	}
}

// text says what was denied and what would allow it.
func (d *Denied) text() string {
	host := d.Name
	if host == "" {
		host = d.Addr.String()
	}
	shown := host
	if d.Port != 0 {
		shown = net.JoinHostPort(host, strconv.Itoa(int(d.Port)))
	}
	text := "denied: " + shown
	switch {
	case d.Unlisted:
		entry := host
		if !slices.Contains([]uint16{0, 80, 443}, d.Port) {
			entry = shown
		}
		text += "; allow it with --allow " + entry
	case d.Blocked:
		text += ": " + d.Reason + "; open it with --egress-allow-ranges " + d.Addr.String()
	default:
		text += ": " + cmp.Or(d.Reason, "not allowed")
	}
	if d.Times > 1 {
		text += fmt.Sprintf(" (%d times)", d.Times)
	}
	return text
}
