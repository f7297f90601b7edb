// Package policy says what a sandbox may reach: which names, addresses and
// ports, and by which requests. It decides on text and numbers alone, does no
// I/O and asks no resolver, so a name that is denied never leaves the machine.
//
// What it judges is a [Target]: the one canonical form of a host and a port.
// Whoever dials must dial the Target that was judged, not the text it came from.
package policy

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"agentbox/internal/sandbox"
)

// Mode is how much of the network a sandbox has.
type Mode = sandbox.NetworkMode

// Modes of a policy.
const (
	None      = sandbox.NetworkNone
	Allowlist = sandbox.NetworkAllowlist
	Full      = sandbox.NetworkFull
)

// Policy is a compiled [Spec]. It does not change, so any number of goroutines
// may ask it. The zero value, and nil, allow nothing.
type Policy struct {
	mode   Mode
	names  map[string][]rule // by the name itself
	below  map[string][]rule // by what stands behind "*."
	ranges []rangeRule
	// wide4 and wide6 are how many addresses the ranges have together, of IPv6
	// networks of 64 bits.
	wide4, wide6 uint64
	// intercept names what is intercepted as if it were allowed; nil: nothing.
	intercept *Policy
	inTLS     bool // there are rules for some requests over TLS only
}

// rule is what an entry says of the hosts that it names.
type rule struct {
	text  string // Verdict.Rule
	ports [2]uint16
	// requests are the only ones that are allowed; nil: all, seen or not.
	requests *requests
}

func (r *rule) port(p uint16) bool { return p == r.ports[0] || p == r.ports[1] }

type rangeRule struct {
	prefix netip.Prefix
	rule
}

// Verdict is what a policy says.
type Verdict struct {
	Allow bool
	// Rule is the entry that allowed it, in canonical form; of a preset, with its
	// name before it: "python: pypi.example". Empty if nothing allowed it.
	Rule string
	// Reason is why it is denied, for people; empty if it is allowed.
	Reason string
	// SeeRequest: it is allowed for some requests only. Whoever can't see the
	// requests on the connection, to ask [Policy.Request] for each, must deny it.
	SeeRequest bool
}

func deny(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...)}
}

// Mode of the policy.
func (p *Policy) Mode() Mode {
	if p == nil || p.mode == "" {
		return None
	}
	return p.mode
}

// Connect judges a connection, before anything is resolved.
func (p *Policy) Connect(t Target) Verdict {
	if v, done := p.outright(t); done {
		return v
	}
	var otherPort bool
	var some *rule
	for r := range p.rules(t) {
		switch {
		case !r.port(t.Port):
			otherPort = true
		case r.requests == nil:
			return Verdict{Allow: true, Rule: r.text}
		case some == nil:
			some = r
		}
	}
	switch {
	case some != nil:
		return Verdict{Allow: true, Rule: some.text, SeeRequest: true}
	case otherPort:
		return deny("port %d of %s is not on the sandbox's allow-list", t.Port, t.Host())
	}
	return deny("%s is not on the sandbox's allow-list", t.Host())
}

// Request judges one request. Scheme is "http" or "https", path is as the client
// sent it, escaped; what follows a question mark in it does not count.
func (p *Policy) Request(t Target, scheme, method, path string) Verdict {
	v := p.Connect(t)
	if !v.Allow || !v.SeeRequest {
		return v
	}
	for r := range p.rules(t) {
		if r.port(t.Port) && r.requests.match(scheme, method, path) {
			return Verdict{Allow: true, Rule: r.text}
		}
	}
	return deny("%.16q %.64q of %s is not on the sandbox's allow-list", method, path, t.Host())
}

// Intercept reports whether TLS to a target that is allowed is ended by the proxy,
// which then sees the requests: because the Spec says so, or because only some
// requests over TLS are allowed.
func (p *Policy) Intercept(t Target) bool {
	if p == nil || p.intercept.Connect(t).Allow {
		return p != nil
	}
	if !p.inTLS || !p.Connect(t).SeeRequest {
		return false
	}
	for r := range p.rules(t) {
		if r.port(t.Port) && r.requests.overTLS() {
			return true
		}
	}
	return false
}

// Intercepts reports whether there may be any such target.
func (p *Policy) Intercepts() bool { return p != nil && (p.intercept != nil || p.inTLS) }

// Name reports whether a name, in any spelling, may be resolved: whether any
// port of it can be reached. Addresses are no names.
func (p *Policy) Name(name string) bool {
	t, err := ParseHost(name, 1)
	if err != nil || t.Name == "" {
		return false
	}
	if v, done := p.outright(t); done {
		return v.Allow
	}
	for range p.rules(t) {
		return true
	}
	return false
}

// Wide reports whether the ranges of a list are so many addresses together that it
// is no list any more: more than four of the widest ranges.
func (p *Policy) Wide() bool { return p.wide4 > 4<<(32-minBits4) || p.wide6 > 4<<(64-minBits6) }

// outright judges what needs no rules.
func (p *Policy) outright(t Target) (v Verdict, done bool) {
	switch {
	case p.Mode() == None:
		return deny("the sandbox has no network"), true
	case t.Port == 0 || t.Name == "" && !t.Addr.IsValid():
		return deny("there is no host or no port"), true
	case local(t.Name):
		return deny("%s is the sandbox itself: it is reached without a proxy", t.Name), true
	case p.mode == Full:
		return Verdict{Allow: true, Rule: string(Full)}, true
	}
	return Verdict{}, false
}

// rules gives those for the target's host, the closest ones first.
func (p *Policy) rules(t Target) iter.Seq[*rule] {
	if t.Name != "" {
		return p.nameRules(t.Name)
	}
	return func(yield func(*rule) bool) {
		for i := range p.ranges {
			if p.ranges[i].prefix.Contains(t.Addr) && !yield(&p.ranges[i].rule) {
				return
			}
		}
	}
}

func (p *Policy) nameRules(name string) iter.Seq[*rule] {
	return func(yield func(*rule) bool) {
		all := p.names[name]
		for {
			for i := range all {
				if !yield(&all[i]) {
					return
				}
			}
			_, parent, more := strings.Cut(name, ".")
			if !more {
				return
			}
			name, all = parent, p.below[parent]
		}
	}
}
