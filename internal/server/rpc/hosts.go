package rpc

import (
	"errors"
	"fmt"
	"strings"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

// wholeNetwork stands for all hosts in allowed_hosts of answers.
const wholeNetwork = "*"

// network is what a request says of it.
func (s *service) network(q *sandboxv1.CreateSessionRequest) (sandbox.Network, error) {
	hosts := q.GetAllowedHosts()
	switch n := q.GetNetwork(); {
	case n == sandboxv1.Network_NETWORK_UNSPECIFIED, n == sandboxv1.Network_NETWORK_ALLOWLIST:
		if len(hosts) == 0 {
			hosts = s.Session.Hosts
		}
		return sandbox.Network{Mode: sandbox.NetworkAllowlist, Allow: entriesOf(hosts)}, nil
	case len(hosts) > 0:
		return sandbox.Network{}, &sandbox.InvalidError{Field: "allowed_hosts", Value: fmt.Sprintf("%.64s", hosts[0]), Allowed: "none with this network"}
	case n == sandboxv1.Network_NETWORK_NONE:
		return sandbox.Network{Mode: sandbox.NetworkNone}, nil
	case n == sandboxv1.Network_NETWORK_FULL:
		return sandbox.Network{Mode: sandbox.NetworkFull}, nil
	default:
		return sandbox.Network{}, &sandbox.InvalidError{Field: "network", Value: n.String(), Allowed: "none, allowlist or full"}
	}
}

// entriesOf are hosts as entries of the core's allow-list. Here *.x means x, too,
// and a word is a host: in the core it would be a preset's name.
func entriesOf(hosts []string) []string {
	var all []string
	for _, h := range hosts {
		if isWord(h) {
			h += "."
		}
		all = append(all, h)
		if apex, ok := strings.CutPrefix(h, "*."); ok {
			all = append(all, apex)
		}
	}
	return all
}

// hostsOf is the way back. An allow-list that another door set is shown as it is.
func hostsOf(n *sandbox.Network) []string {
	if n.Mode == sandbox.NetworkFull {
		return []string{wholeNetwork}
	}
	var hosts []string
	for i, e := range n.Allow {
		if i > 0 && n.Allow[i-1] == "*."+e {
			continue
		}
		if w := strings.TrimSuffix(e, "."); isWord(w) {
			e = w
		}
		hosts = append(hosts, e)
	}
	return hosts
}

// isWord reports a host of one label, other than the one that leads nowhere.
func isWord(h string) bool {
	return h != "" && h != "localhost" && !strings.ContainsAny(h, ".:*/[ ,")
}

// onHosts says that an error about the core's allow-list is about allowed_hosts.
func onHosts(err error) error {
	var invalid *sandbox.InvalidError
	if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "network.allow") {
		return err
	}
	return &sandbox.InvalidError{Field: "allowed_hosts", Value: invalid.Value, Allowed: invalid.Allowed}
}
