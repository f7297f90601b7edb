// Package policy says what a sandbox may reach: which names, addresses and
// ports, and by which requests. It decides on text and numbers alone, does no
// I/O and asks no resolver, so a name that is denied never leaves the machine.
//
// What it judges is a [Target]: the one canonical form of a host and a port.
// Whoever dials must dial the Target that was judged, not the text it came from.
package policy

// Mode is how much of the network a sandbox has.
type Mode string

// Modes of a policy.
const (
	None      Mode = "none"      // nothing at all
	Allowlist Mode = "allowlist" // what Spec.Allow names, and nothing else
	Full      Mode = "full"      // every public name and address, on every port
)

// Spec is a policy as callers write it and as it is stored.
type Spec struct {
	// Mode; "" is Allowlist if there are entries and None if there are none.
	Mode Mode
	// Allow has the entries of an allow-list, at most [MaxEntries]:
	//
	//	python                       a preset, see [Presets]
	//	api.example.com              a host, on ports 80 and 443
	//	*.example.com                one or more labels below it, never example.com itself
	//	api.example.com:8443         a port of its own; *.example.com:8443 as well
	//	intranet.                    a host without a dot has one at the end
	//	192.0.2.1, [2001:db8::1]:22  an address, with or without a port
	//	192.0.2.0/24:5432            a range; [2001:db8::/32]:5432
	//	GET,HEAD https://api.example.com/v1/*
	//	                             requests: methods (* for all), a scheme or
	//	                             none, a host, a path; * at its end is a prefix
	//
	// A range or an address is for those who ask for an address; a name that
	// resolves into it is not allowed by it.
	Allow []string
}

// Bounds of a Spec.
const (
	MaxEntries = 1000
	// MaxEntry is the length of an entry in bytes: a name of 253, a path, methods.
	MaxEntry = 512
)

// Policy is a compiled Spec. It does not change, so any number of goroutines may
// ask it. The zero value, and nil, allow nothing.
type Policy struct{ mode Mode }

// Compile checks and compiles a Spec. Its errors are *sandbox.InvalidError that
// name "network.mode" or the entry, "network.allow[3]".
func Compile(s Spec) (*Policy, error) { return &Policy{mode: s.Mode}, nil }

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

// Mode of the policy.
func (p *Policy) Mode() Mode { return p.mode }

// Connect judges a connection, before anything is resolved.
func (p *Policy) Connect(t Target) Verdict { return Verdict{} }

// Request judges one request. Scheme is "http" or "https", path is as the client
// sent it, escaped; what follows a question mark in it does not count.
func (p *Policy) Request(t Target, scheme, method, path string) Verdict { return Verdict{} }

// Name reports whether a name, in any spelling, may be resolved: whether any
// port of it can be reached. Addresses are no names.
func (p *Policy) Name(name string) bool { return false }

// Cuts reports whether a connection to t that is open under the policy before
// must end under the one after.
func Cuts(before, after *Policy, t Target) bool { return false }

// Presets are the names of the presets, sorted.
func Presets() []string { return nil }

// Preset gives the entries of a preset, in their documented order: "default" has
// the hosts that callers get who ask for a network and say nothing else.
func Preset(name string) (entries []string, ok bool) { return nil, false }
