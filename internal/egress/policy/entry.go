package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Ports of entries that name none: those of HTTP and HTTPS.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// Shortest prefixes of ranges, in bits. What is wider is not a list any more; who
// wants everything says so with the mode full, which operators may forbid.
const (
	minBits4 = 8
	minBits6 = 16
)

// entry is one of Spec.Allow, read. It has a name or a prefix.
type entry struct {
	name     string // canonical
	below    bool   // it stands for what is below the name
	prefix   netip.Prefix
	port     uint16 // 0: none is named
	requests *requests
}

// parseEntry reads what is no preset.
func parseEntry(s string) (entry, error) {
	if word(s) {
		return entry{}, fmt.Errorf("there is no such preset, only %s; a host without a dot is written with one at its end", strings.Join(Presets(), ", "))
	}
	methods, rest, ok := strings.Cut(s, " ")
	if !ok {
		if _, rest, ok := strings.Cut(s, "://"); ok {
			host, _, _ := strings.Cut(rest, "/")
			return entry{}, fmt.Errorf("a host is written as %.64q, some of its requests as %q", host, "GET "+s)
		}
		if strings.Contains(s, "/") {
			return parseRange(s)
		}
		return parseHosts(s)
	}
	req, host, err := parseRequests(methods, rest)
	if err != nil {
		return entry{}, err
	}
	e, err := parseHosts(host)
	e.requests = req
	return e, err
}

// word reports whether an entry looks like a preset. It would be a surprise if a
// misspelt one were taken for a host.
func word(s string) bool {
	if strings.ContainsAny(s, ".:") {
		return false
	}
	t, err := parse(s)
	return err == nil && t.Name == strings.ToLower(s) && !local(t.Name)
}

// parseHosts reads a host, what is below it, or an address.
func parseHosts(s string) (entry, error) {
	host, below := strings.CutPrefix(s, "*.")
	read := parse
	if strings.Count(host, ":") > 1 && host[0] != '[' {
		read = parseHost // IPv6 without a port needs no brackets here
	}
	t, err := read(host)
	e := entry{name: t.Name, below: below, port: t.Port}
	switch {
	case err != nil:
		return entry{}, err
	case below && !strings.Contains(t.Name, "."):
		return entry{}, errors.New("all below a single label is no list; name at least two behind the *")
	case t.Name == "":
		e.prefix = netip.PrefixFrom(t.Addr, t.Addr.BitLen())
	}
	return e, nil
}

// parseRange reads an address with its number of bits.
func parseRange(s string) (e entry, err error) {
	text, port := s, ""
	if inside, ok := strings.CutPrefix(s, "["); ok {
		if text, port, ok = strings.Cut(inside, "]"); !ok {
			return entry{}, errors.New("the closing bracket is missing")
		}
	} else if slash := strings.IndexByte(s, '/'); strings.Contains(s[slash:], ":") {
		at := slash + strings.IndexByte(s[slash:], ':')
		text, port = s[:at], s[at:]
	}
	if e.prefix, err = netip.ParsePrefix(text); err != nil {
		return entry{}, errors.New("it is no range; those of requests begin with methods, as in \"GET host/path\"")
	}
	least := minBits6
	if e.prefix.Addr().Is4() {
		least = minBits4
	}
	switch {
	case e.prefix.Addr().Is4In6():
		return entry{}, errors.New("a range of IPv4 addresses is written as such")
	case e.prefix != e.prefix.Masked():
		return entry{}, fmt.Errorf("the range begins with %s", e.prefix.Masked())
	case e.prefix.Bits() < least:
		return entry{}, fmt.Errorf("a range has at least %d bits", least)
	case port != "" && port[0] != ':':
		return entry{}, errors.New("there is something behind the closing bracket")
	case port != "":
		e.port, err = parsePort(port[1:])
	}
	return e, err
}

// ports are the one that is named, or those of the scheme.
func (e *entry) ports() [2]uint16 {
	switch {
	case e.port != 0:
		return [2]uint16{e.port, e.port}
	case e.requests != nil && e.requests.scheme == "http":
		return [2]uint16{portHTTP, portHTTP}
	case e.requests != nil && e.requests.scheme == "https":
		return [2]uint16{portHTTPS, portHTTPS}
	}
	return [2]uint16{portHTTP, portHTTPS}
}

// String is the entry in canonical form.
func (e *entry) String() string {
	host := e.name
	switch {
	case e.below:
		host = "*." + e.name
	case e.prefix.IsSingleIP():
		host = e.prefix.Addr().String()
	case e.prefix.IsValid():
		host = e.prefix.String()
	}
	if e.port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(e.port)))
	} else if e.prefix.IsValid() && e.prefix.Addr().Is6() && e.requests != nil {
		host = "[" + host + "]"
	}
	switch {
	case e.requests != nil:
		return e.requests.text(host)
	case e.name == host && !strings.Contains(host, ".") && !local(host):
		return host + "." // or it would be a preset
	}
	return host
}
