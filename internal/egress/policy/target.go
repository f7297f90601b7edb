package policy

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

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
func (t Target) String() string {
	return net.JoinHostPort(t.Host(), strconv.Itoa(int(t.Port)))
}

// maxHost is the length of a host in any spelling, in bytes: above four, the most
// that a character takes, times the longest name.
const maxHost = 1024

// ParseTarget reads "host", "host:port", "1.2.3.4:port" or "[2001:db8::1]:port",
// as they stand in a CONNECT request, a URL or a Host header. Without a port it is
// defaultPort, or an error if that is 0. It refuses what two readers could take
// for two things: user information, white space, percent signs, spellings of
// addresses other than the usual one, names that change when they are mapped to
// their canonical form (other than by case or a dot at the end). Errors are
// *sandbox.Refusal of the class of invalid arguments; they say what is wrong.
func ParseTarget(hostport string, defaultPort uint16) (Target, error) {
	t, err := parse(hostport)
	switch {
	case err != nil:
		return Target{}, err
	case t.Port == 0 && defaultPort == 0:
		return Target{}, refuse(hostport, "has no port")
	case t.Port == 0:
		t.Port = defaultPort
	}
	return t, nil
}

// parse is ParseTarget with port 0 if there is none.
func parse(hostport string) (Target, error) {
	host, port, bracketed, err := splitPort(hostport)
	if err != nil {
		return Target{}, err
	}
	t, err := parseHost(host)
	switch {
	case err != nil:
		return Target{}, err
	case bracketed && !t.Addr.Is6():
		return Target{}, refuse(hostport, "has brackets, and no IPv6 address in them")
	case port != "":
		t.Port, err = parsePort(port[1:])
	}
	return t, err
}

// splitPort cuts off the port with its colon; it is empty if there is none. It
// does not judge the host, but an unbracketed one has no colon.
func splitPort(s string) (host, port string, bracketed bool, err error) {
	host, port = s, ""
	if inside, ok := strings.CutPrefix(s, "["); ok {
		if host, port, ok = strings.Cut(inside, "]"); !ok || port != "" && port[0] != ':' {
			return "", "", false, refuse(s, "has brackets that do not stand around its address")
		}
		bracketed = true
	} else if at := strings.IndexByte(s, ':'); at >= 0 {
		host, port = s[:at], s[at:]
	}
	if strings.LastIndexByte(port, ':') > 0 {
		return "", "", false, refuse(s, "has more than one colon; IPv6 addresses stand in brackets")
	}
	return host, port, bracketed, nil
}

// parsePort takes decimal digits only, without zeros before them: other readers
// may take those for octal, or cut the number.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, sandbox.Refuse(errdefs.ErrInvalidArgument, "%.16q is no port; want 1 to 65535", s)
	}
	return uint16(n), nil
}

// ParseHost reads a host without a port, as it stands in a SOCKS request, a TLS
// server name or a question to a resolver; IPv6 addresses have no brackets. It is
// as strict as [ParseTarget].
func ParseHost(host string, port uint16) (Target, error) {
	t, err := parseHost(host)
	if err != nil {
		return Target{}, err
	}
	return t.on(port)
}

func parseHost(host string) (Target, error) {
	if len(host) > maxHost {
		return Target{}, refuse(host, "is too long")
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return Target{}, refuse(host, "is no IPv6 address")
		}
		return addrTarget(addr)
	}
	name, err := canonical(host)
	if err != nil {
		return Target{}, err
	}
	if !numeric(name) {
		return Target{Name: name}, nil
	}
	addr, err := netip.ParseAddr(host) // not name: an address has no dot at its end
	if err != nil {
		return Target{}, refuse(host, "ends in a number and is no IPv4 address in its usual form, such as 192.0.2.1")
	}
	return addrTarget(addr)
}

// AddrTarget is the target of an address in binary form, as SOCKS has it.
func AddrTarget(addr netip.Addr, port uint16) (Target, error) {
	t, err := addrTarget(addr)
	if err != nil {
		return Target{}, err
	}
	return t.on(port)
}

func addrTarget(addr netip.Addr) (Target, error) {
	switch {
	case !addr.IsValid():
		return Target{}, refuse("", "is no address")
	case addr.Zone() != "":
		return Target{}, refuse(addr.String(), "has a zone, which means nothing beyond one machine")
	case addr.Is4In6():
		return Target{}, refuse(addr.String(), "is an IPv4 address inside an IPv6 one; write it as IPv4")
	}
	return Target{Addr: addr}, nil
}

// on gives the target a port.
func (t Target) on(port uint16) (Target, error) {
	if port == 0 {
		return Target{}, sandbox.Refuse(errdefs.ErrInvalidArgument, "0 is no port; want 1 to 65535")
	}
	t.Port = port
	return t, nil
}

func refuse(host, why string) error {
	return sandbox.Refuse(errdefs.ErrInvalidArgument, "host %.64q %s", host, why)
}
