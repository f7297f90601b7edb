package vault

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
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
// is replaced: more would let a request grow without bounds.
func (v *Vault) Inject(s *egress.Session, t policy.Target, h http.Header) (hide []string, err error) {
	for _, u := range s.Secrets() {
		e := v.given(s, u, t)
		if e == nil {
			continue
		}
		fields := h[e.Header]
		for i, f := range fields {
			p, ok := findPlaceholder(f, u.Placeholder)
			if !ok {
				continue
			}
			value, _, err := v.unseal(e)
			if err != nil {
				return nil, fmt.Errorf("secret %s: %w", e.Name, errUnreadable)
			}
			fields[i] = p.replaced(e.Format, value.Reveal())
			hide = append(hide, forms(value.Reveal())...)
			if p.basic && e.Format == "" {
				hide = append(hide, strings.TrimPrefix(fields[i], p.before))
			}
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

// forms are how a server may repeat a value in what it answers: as it is, in a
// URL, in JSON, in HTML or in base64.
func forms(value string) []string {
	all := []string{
		value, url.QueryEscape(value), url.PathEscape(value), quoted(value, true), quoted(value, false), html.EscapeString(value),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// quoted is a text as it stands between the quotes of JSON.
func quoted(text string, escapeHTML bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	_ = enc.Encode(text) // never fails for a string
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}
