package vault

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// NewSecret is a secret that an owner wants kept.
type NewSecret struct {
	Name  string
	Value Value
	// Hosts it is for, see policy.CompileHosts: 1 to MaxHosts.
	Hosts []string
	// Header that it stands in. Empty: DefaultHeader.
	Header string
	// Format is what becomes of the header, see sandbox.Secret.
	Format string
}

// Bounds and defaults of secrets.
const (
	DefaultHeader = "Authorization"
	MaxHosts      = 64
	maxHeader     = 64
	maxFormat     = 256
	mark          = "{}" // in formats, where the value goes
)

// reserved are headers that say how a request is sent, to whom and how long it is.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// entry checks it. What was written may be the value itself, by mistake: errors do
// not repeat it.
func (n *NewSecret) entry(owner string) (*entry, error) {
	if err := sandbox.CheckSecretName("name", n.Name); err != nil {
		return nil, err
	}
	if err := n.Value.check(); err != nil {
		return nil, err
	}
	if len(n.Hosts) == 0 || len(n.Hosts) > MaxHosts {
		return nil, &sandbox.InvalidError{Field: "hosts", Value: fmt.Sprint(len(n.Hosts)), Allowed: fmt.Sprintf("1 to %d hosts", MaxHosts)}
	}
	hosts, canonical, err := policy.CompileHosts("hosts", n.Hosts)
	if err != nil {
		return nil, err
	}
	header := http.CanonicalHeaderKey(cmp.Or(n.Header, DefaultHeader))
	if len(header) > maxHeader || !isToken(header) || slices.Contains(reserved, header) {
		return nil, &sandbox.InvalidError{Field: "header", Value: fmt.Sprintf("%d bytes", len(n.Header)), Allowed: "the name of a header, such as Authorization or X-Api-Key, and none that says how a request is sent"}
	}
	if n.Format != "" && (len(n.Format) > maxFormat || strings.Count(n.Format, mark) != 1 || !isField(n.Format)) {
		return nil, &sandbox.InvalidError{Field: "format", Value: fmt.Sprintf("%d bytes", len(n.Format)), Allowed: fmt.Sprintf("at most %d bytes with %s once, such as Bearer %s", maxFormat, mark, mark)}
	}
	return &entry{sandbox.SealedSecret{Secret: sandbox.Secret{Owner: owner, Name: n.Name, Hosts: canonical, Header: header, Format: n.Format}}, hosts}, nil
}

// isToken reports whether a text can be the name of a header (RFC 9110, section
// 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}
