package vault

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// Wants implements egress.Injector: whether a secret of the sandbox is for a host.
func (v *Vault) Wants(s *egress.Session, t policy.Target) bool {
	return slices.ContainsFunc(s.Secrets(), func(u sandbox.SecretUse) bool { return v.given(s, u, t) != nil })
}

// given is a secret that a sandbox was given, if it is there and for a target.
func (v *Vault) given(s *egress.Session, u sandbox.SecretUse, t policy.Target) *entry {
	e := v.find(s.Owner(), u.Name)
	if e == nil || e.ID != u.ID || !e.hosts.Has(t) {
		return nil
	}
	return e
}

// Inject implements egress.Injector. Of each secret one placeholder of a request
// is replaced: more would let a request grow without bounds. All secrets for the
// target are to be hidden: it may remember those of earlier requests, of other
// sandboxes, too.
func (v *Vault) Inject(s *egress.Session, t policy.Target, h http.Header) (hide []string, err error) {
	together := 0
	for _, u := range s.Secrets() {
		e := v.given(s, u, t)
		if e == nil {
			continue
		}
		value, _, unreadable := v.unseal(e)
		if unreadable == nil {
			if together += len(value.Reveal()); together > MaxTogether {
				return nil, errTogether
			}
			hide = append(hide, value.Reveal())
		}
		fields := h[e.Header]
		for i, f := range fields {
			p, ok := findPlaceholder(f, u.Placeholder)
			if !ok {
				continue
			}
			if unreadable != nil {
				return nil, fmt.Errorf("secret %s: %w", e.Name, errUnreadable)
			}
			fields[i] = p.replaced(e.Format, value.Reveal())
			break
		}
	}
	return hide, nil
}

// place is where a placeholder stands in a field.
type place struct {
	before, after string
	// basic: it stands in the credentials of the Basic scheme, whose decoded text is
	// inner; before has the scheme.
	basic              bool
	inner, placeholder string
}

func findPlaceholder(field, placeholder string) (p place, ok bool) {
	if p.before, p.after, ok = strings.Cut(field, placeholder); ok {
		return p, true
	}
	scheme, encoded, ok := strings.Cut(field, " ")
	if !ok || !strings.EqualFold(scheme, "basic") {
		return p, false
	}
	inner, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || !strings.Contains(string(inner), placeholder) {
		return p, false
	}
	return place{before: scheme + " ", basic: true, inner: string(inner), placeholder: placeholder}, true
}

// replaced is the field with the value.
func (p *place) replaced(format, value string) string {
	switch {
	case format != "":
		return strings.Replace(format, mark, value, 1)
	case p.basic:
		return p.before + base64.StdEncoding.EncodeToString([]byte(strings.Replace(p.inner, p.placeholder, value, 1)))
	}
	return p.before + value + p.after
}
