package policy

import "net/netip"

// Target is a host and a port in the one form in which they are judged, resolved
// and dialled. Make it with [ParseTarget], [ParseHost] or [AddrTarget]; those who
// build it by hand must keep to the form.
type Target struct {
	// Name is lower-case, of ASCII, its internationalised labels in their
	// xn-- form, without a dot at the end. Empty if the host is an address.
	Name string
	// Addr is the address that was written instead of a name: without a zone,
	// and never IPv4 inside IPv6.
	Addr netip.Addr
	// Port is 1 to 65535.
	Port uint16
}

// Host is the name or the address, IPv6 without brackets.
func (t Target) Host() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Addr.String()
}

// String is host:port, IPv6 in brackets.
func (t Target) String() string { return "" }

// ParseTarget reads "host", "host:port", "1.2.3.4:port" or "[2001:db8::1]:port",
// as they stand in a CONNECT request, a URL or a Host header. Without a port it is
// defaultPort, or an error if that is 0. It refuses what two readers could take
// for two things: user information, white space, percent signs, spellings of
// addresses other than the usual one, names that change when they are mapped to
// their canonical form (other than by case or a dot at the end). Errors are
// *sandbox.Refusal of the class of invalid arguments; they say what is wrong.
func ParseTarget(hostport string, defaultPort uint16) (Target, error) { return Target{}, nil }

// ParseHost reads a host without a port, as it stands in a SOCKS request, a TLS
// server name or a question to a resolver; IPv6 addresses have no brackets. It is
// as strict as [ParseTarget].
func ParseHost(host string, port uint16) (Target, error) { return Target{}, nil }

// AddrTarget is the target of an address in binary form, as SOCKS has it.
func AddrTarget(addr netip.Addr, port uint16) (Target, error) { return Target{}, nil }
