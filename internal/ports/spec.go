// Package ports makes ports of sandboxes reachable on the host: a listener for
// each mapping, on the loopback interface unless somebody asks for more.
package ports

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"agentbox/internal/sandbox"
)

// Mapping is a port of the host that leads to one of a sandbox.
type Mapping struct {
	Host  netip.AddrPort // port 0: any that is free
	Guest uint16
}

// Loopback is where mappings listen unless they say otherwise.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

const allowed = "[HOST_IP:][HOST:]GUEST, such as 8000, 8080:8000, 0:8000 for any free port, or 127.0.0.1:8080:8000; " +
	"an IPv6 address stands in brackets; a port is a number from 1 to 65535"

// Parse reads a mapping of the form [HOST_IP:][HOST:]GUEST. Without HOST the
// port is the guest's own; an empty HOST or 0 is any free port. All is TCP, which
// /tcp at the end may say. An error is a [sandbox.InvalidError].
func Parse(s string) (Mapping, error) {
	bad := &sandbox.InvalidError{Field: "publish", Value: s, Allowed: allowed}
	s = strings.TrimSuffix(s, "/tcp")
	if strings.Contains(s, "/") {
		bad.Allowed = "TCP only: " + allowed
		return Mapping{}, bad
	}
	head, last := cutLast(s)
	guest, ok := parsePort(last)
	if !ok || guest == 0 {
		return Mapping{}, bad
	}
	m := Mapping{Host: netip.AddrPortFrom(Loopback, guest), Guest: guest}
	if head == "" && last == s {
		return m, nil
	}
	ip, host := cutLast(head)
	if strings.HasSuffix(host, "]") { // an IPv6 address and no port: [::1]:8000
		return Mapping{}, bad
	}
	port := uint16(0)
	if host != "" {
		if port, ok = parsePort(host); !ok {
			return Mapping{}, bad
		}
	}
	addr := Loopback
	if strings.Contains(head, ":") {
		var err error
		if addr, err = parseIP(ip); err != nil {
			return Mapping{}, bad
		}
	}
	m.Host = netip.AddrPortFrom(addr, port)
	return m, nil
}

// cutLast cuts s around its last colon; without one all of it is last.
func cutLast(s string) (head, last string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}

func parsePort(s string) (uint16, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false // ParseUint would take a sign or an underscore
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}

// parseIP takes 127.0.0.1 and [::1], without a zone.
func parseIP(s string) (netip.Addr, error) {
	inner, bracket := strings.CutPrefix(s, "[")
	if bracket {
		inner = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(inner)
	if err == nil && (ip.Is6() != bracket || ip.Zone() != "" || bracket && s != "["+inner+"]") {
		err = fmt.Errorf("bad address %q", s)
	}
	return ip, err
}

// String is the mapping in the form that Parse reads.
func (m Mapping) String() string {
	return net.JoinHostPort(m.Host.Addr().String(), strconv.Itoa(int(m.Host.Port()))) + ":" + strconv.Itoa(int(m.Guest))
}

// Range is the ports of the host that may be used, both ends included.
type Range struct{ First, Last uint16 }

// DefaultRange leaves out the ports that only root may use.
var DefaultRange = Range{1024, 65535}

// ParseRange reads "FIRST-LAST".
func ParseRange(s string) (Range, error) {
	a, b, _ := strings.Cut(s, "-")
	first, ok1 := parsePort(a)
	last, ok2 := parsePort(b)
	if !ok1 || !ok2 || first == 0 || last < first {
		return Range{}, &sandbox.InvalidError{Field: "port range", Value: s, Allowed: "FIRST-LAST, such as 1024-65535"}
	}
	return Range{first, last}, nil
}

func (r Range) holds(port uint16) bool { return r.First <= port && port <= r.Last }

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }
