package policy

import (
	"errors"
	"fmt"
	"strings"

	"agentbox/internal/sandbox"
)

// Spec is a policy as callers write it and as it is stored.
type Spec = sandbox.Network

// Bounds of a Spec.
const (
	MaxEntries = 1000
	// MaxEntry is the length of an entry in bytes: a name of 253, a path, methods.
	MaxEntry = 512
)

// Compile checks and compiles a Spec. Its errors are *sandbox.InvalidError that
// name "network.mode", "network.allow", "network.intercept" or the entry,
// "network.allow[3]".
func Compile(s Spec) (*Policy, error) {
	if s.Mode == "" {
		s.Mode = None
		if len(s.Allow) > 0 {
			s.Mode = Allowlist
		}
	}
	switch {
	case s.Mode != None && s.Mode != Allowlist && s.Mode != Full:
		return nil, &sandbox.InvalidError{Field: "network.mode", Value: fmt.Sprintf("%.64s", s.Mode), Allowed: "none, allowlist or full"}
	case s.Mode != Allowlist && len(s.Allow) > 0:
		return nil, &sandbox.InvalidError{Field: "network.allow", Value: fmt.Sprintf("%.64s", s.Allow[0]), Allowed: "no entries with the mode " + string(s.Mode)}
	case s.Mode == None && len(s.Intercept) > 0:
		return nil, &sandbox.InvalidError{Field: "network.intercept", Value: fmt.Sprintf("%.64s", s.Intercept[0]), Allowed: "no entries with the mode none"}
	}
	p, err := compile("network.allow", s.Mode, s.Allow, hosts+requestForm)
	if err == nil && len(s.Intercept) > 0 {
		p.intercept, err = compile("network.intercept", Allowlist, s.Intercept, hosts)
	}
	return p, err
}

// What an entry may look like, for people.
const (
	hosts       = "a preset, a host, *.host, host:port, an address or a range"
	requestForm = `, or "METHODS host/path"`
)

// compile makes a policy of one list. Forms are what its entries may look like.
func compile(field string, mode Mode, entries []string, forms string) (*Policy, error) {
	if len(entries) > MaxEntries {
		return nil, &sandbox.InvalidError{Field: field, Value: fmt.Sprint(len(entries)), Allowed: fmt.Sprintf("at most %d entries", MaxEntries)}
	}
	p := &Policy{mode: mode, names: map[string][]rule{}, below: map[string][]rule{}}
	for i, entry := range entries {
		err := p.addEntry(entry)
		if err == nil && forms == hosts && strings.Contains(entry, " ") {
			err = errors.New("requests stand in network.allow: hosts of which only some are allowed are intercepted without an entry here")
		}
		if err != nil {
			return nil, &sandbox.InvalidError{Field: fmt.Sprintf("%s[%d]", field, i), Value: fmt.Sprintf("%.64s", entry), Allowed: forms + " (" + err.Error() + ")"}
		}
	}
	return p, nil
}

// addEntry adds what one entry allows.
func (p *Policy) addEntry(text string) error {
	if len(text) > MaxEntry {
		return fmt.Errorf("it has more than %d bytes", MaxEntry)
	}
	hosts, ok := Preset(text)
	if !ok {
		return p.addHost(text, "")
	}
	for _, h := range hosts {
		if err := p.addHost(h, text+": "); err != nil {
			return fmt.Errorf("%s in it: %w", h, err)
		}
	}
	return nil
}

// addHost adds an entry that is no preset; before stands in the rule's text.
func (p *Policy) addHost(text, before string) error {
	e, err := parseEntry(text)
	if err != nil {
		return err
	}
	p.add(e, before)
	return nil
}

func (p *Policy) add(e entry, before string) {
	r := rule{text: before + e.String(), ports: e.ports(), requests: e.requests}
	p.inTLS = p.inTLS || e.requests.overTLS()
	switch {
	case e.prefix.IsValid():
		p.ranges = append(p.ranges, rangeRule{e.prefix, r})
		if bits := e.prefix.Bits(); e.prefix.Addr().Is4() {
			p.wide4 += 1 << (32 - bits)
		} else {
			p.wide6 += 1 << max(64-bits, 0)
		}
	case e.below:
		p.below[e.name] = append(p.below[e.name], r)
	default:
		p.names[e.name] = append(p.names[e.name], r)
	}
}
