package policy

import (
	"errors"
	"fmt"
	"strings"

	"agentbox/internal/sandbox"
)

// Hosts are hosts that something is for. They are written as in a [Spec], without
// presets, ranges and requests. They do not change; nil has none.
type Hosts struct{ p Policy }

// CompileHosts reads a list and gives it in its canonical form, too. Its errors
// are *sandbox.InvalidError that name the field and the entry, "hosts[1]". They do
// not repeat the entry, which may be the secret that the hosts are for, by mistake.
func CompileHosts(field string, entries []string) (*Hosts, []string, error) {
	h := &Hosts{Policy{mode: Allowlist, names: map[string][]rule{}, below: map[string][]rule{}}}
	canonical := make([]string, 0, len(entries))
	for i, text := range entries {
		e, err := parseHostEntry(text)
		if err != nil {
			return nil, nil, &sandbox.InvalidError{
				Field: fmt.Sprintf("%s[%d]", field, i), Value: fmt.Sprintf("%d bytes", len(text)),
				Allowed: "a host, *.host, an address, or one of them with a port (" + err.Error() + ")",
			}
		}
		h.p.add(e, "")
		canonical = append(canonical, e.String())
	}
	return h, canonical, nil
}

func parseHostEntry(text string) (entry, error) {
	switch {
	case len(text) > MaxEntry:
		return entry{}, fmt.Errorf("it has more than %d bytes", MaxEntry)
	case text == "":
		return entry{}, errors.New("it is empty")
	case strings.ContainsAny(text, " /"):
		return entry{}, errors.New("ranges, URLs and requests are no hosts")
	case word(text):
		return entry{}, errors.New("a host without a dot is written with one at its end")
	}
	e, err := parseHosts(text)
	if err != nil {
		return e, errors.New("it is another text")
	}
	return e, nil
}

// Has reports whether a target is one of them.
func (h *Hosts) Has(t Target) bool { return h != nil && h.p.Connect(t).Allow }
