package dial_test

import (
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentbox/internal/egress/dial"
)

// The slow matcher: the rules written down once more, with regular expressions
// and package net instead of the parser, net/netip and tables of the product. It
// knows no internationalised names but those of the generator.

var (
	hostForm    = regexp.MustCompile(`^(\[[0-9a-f:.]+\]|[^\[\]:]+)(:[1-9][0-9]{0,4})?$`)
	nameForm    = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$`)
	numberForm  = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
	addressForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}$`)
	rangeForm   = regexp.MustCompile(`^\[?([0-9a-f:.]+/[0-9]+)\]?(:[0-9]+)?$`)
	loopForm    = regexp.MustCompile(`^(.+\.)?localhost$|^localhost\.localdomain$`)
)

// idn are the labels that are known, and their form in ASCII.
var idn = map[string]string{"b\u00fccher": "xn--bcher-kva", "\u00fc": "xn--tda"}

// read gives the name or the address that a text means, and the port.
func read(text string, port int) (name string, ip net.IP, _ int, ok bool) {
	m := hostForm.FindStringSubmatch(strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text))
	if m == nil {
		return "", nil, 0, false
	}
	if m[2] != "" {
		port, _ = strconv.Atoi(m[2][1:])
	}
	if port > 65535 {
		return "", nil, 0, false
	}
	if inside, ok := strings.CutPrefix(m[1], "["); ok {
		ip = net.ParseIP(strings.TrimSuffix(inside, "]"))
		return "", ip, port, ip != nil && ip.To4() == nil
	}
	name, ok = readName(strings.TrimSuffix(m[1], "."))
	if ok && numberForm.MatchString(name) {
		ip = net.ParseIP(m[1])
		return "", ip, port, ip != nil && addressForm.MatchString(m[1])
	}
	return name, nil, port, ok
}

func readName(name string) (string, bool) {
	labels := strings.Split(name, ".")
	for i, l := range labels {
		ascii := l
		if known, ok := idn[l]; ok {
			ascii = known
		} else if strings.HasPrefix(l, "xn--") && !slices.Contains(slices.Collect(maps.Values(idn)), l) {
			return "", false
		}
		if len(ascii) > 63 {
			return "", false
		}
		labels[i] = ascii
	}
	name = strings.Join(labels, ".")
	return name, nameForm.MatchString(name) && len(name) <= 253
}

// listed reports whether an entry of an allow-list names the host and the port.
func listed(entry, name string, ip net.IP, port int) bool {
	if m := rangeForm.FindStringSubmatch(entry); m != nil {
		_, network, err := net.ParseCIDR(m[1])
		return err == nil && ip != nil && network.Contains(ip) && portListed(m[2], port)
	}
	below := strings.HasPrefix(entry, "*.")
	entry = strings.TrimPrefix(entry, "*.")
	entryName, entryIP, entryPort, ok := read(entry, 0)
	if !ok || entryPort == 0 && port != 80 && port != 443 || entryPort != 0 && entryPort != port {
		return false
	}
	switch {
	case entryIP != nil:
		return ip != nil && ip.Equal(entryIP)
	case below:
		return strings.HasSuffix(name, "."+entryName)
	}
	return name == entryName && ip == nil
}

func portListed(text string, port int) bool {
	if text == "" {
		return port == 80 || port == 443
	}
	return text == ":"+strconv.Itoa(port)
}

// How an operator may open addresses that are not public.
const (
	public = iota
	host   // by a range or an exact name
	some   // by a range
	own    // by a range that is no wider than bits
	closed // not at all
)

// kind of an address, and the bits for own.
func kind(a netip.Addr) (how, bits int) {
	for _, m := range []string{"169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254"} {
		if a.String() == m {
			return own, a.BitLen()
		}
	}
	if a.Is4() {
		return kind4(a.As4())
	}
	return kind6(a.As16())
}

func kind4(b [4]byte) (how, bits int) {
	at := func(hi byte, rest ...byte) bool { return b[0] == hi && slices.Equal(b[1:1+len(rest)], rest) }
	switch {
	case at(127):
		return own, 8
	case at(169, 254):
		return own, 16
	case at(10), at(192, 168), b[0] == 172 && b[1]/16 == 1, b[0] == 100 && b[1]/64 == 1:
		return host, 0
	case at(0), b[0] >= 224 && b[0] < 240, at(255, 255, 255, 255), at(192, 88, 99):
		return closed, 0
	case b[0] >= 240, at(192, 0, 0), at(192, 0, 2), at(198, 51, 100), at(203, 0, 113), at(198, 18), at(198, 19):
		return some, 0
	}
	return public, 0
}

func kind6(b [16]byte) (how, bits int) {
	at := func(start ...byte) bool { return slices.Equal(b[:len(start)], start) }
	zeros := func(n int) bool { return strings.Trim(string(b[:n]), "\x00") == "" }
	switch {
	case zeros(15) && b[15] == 1:
		return own, 128
	case b[0] == 0xfe && b[1]/64 == 2:
		return own, 10
	case at(0xfd, 0, 0x0e, 0xc2) && strings.Trim(string(b[4:14]), "\x00") == "":
		return own, 128
	case b[0] == 0xfc, b[0] == 0xfd:
		return host, 0
	case zeros(12), zeros(10) && b[10] == 255 && b[11] == 255, zeros(8) && b[8] == 255 && b[9] == 255 && b[10] == 0 && b[11] == 0, b[0] == 255,
		at(0, 0x64, 0xff, 0x9b) && (strings.Trim(string(b[4:12]), "\x00") == "" || b[4] == 0 && b[5] == 1), at(0x20, 1, 0, 0), at(0x20, 2):
		return closed, 0
	case b[0]/32 != 1, at(0x20, 1, 0x0d, 0xb8), at(0x20, 1) && b[2] < 2, at(0x3f, 0xff) && b[2] < 16:
		return some, 0
	}
	return public, 0
}

// dialable reports whether an address of a name may be dialled.
func dialable(a netip.Addr, name string, o dial.Options) bool {
	how, bits := kind(a)
	opened := slices.ContainsFunc(o.Ranges, func(r netip.Prefix) bool {
		_, network, err := net.ParseCIDR(r.String())
		ones, width := network.Mask.Size()
		return err == nil && width == a.BitLen() && network.Contains(a.AsSlice()) && (how != own || ones >= bits)
	})
	named := slices.ContainsFunc(o.Hosts, func(h string) bool {
		n, _, _, ok := read(h, 80)
		return ok && n == name && name != ""
	})
	return how == public || how == host && named || how != closed && opened
}

// slow gives what is resolved and what is dialled when a client asks for a text.
func slow(allow []string, o dial.Options, answer []netip.Addr, text string) (asked []string, tried []netip.AddrPort) {
	name, ip, port, ok := read(text, 443)
	if !ok || loopForm.MatchString(name) || !slices.ContainsFunc(allow, func(e string) bool { return listed(e, name, ip, port) }) {
		return nil, nil
	}
	if ip == nil {
		asked = []string{name}
	} else {
		a, _ := netip.AddrFromSlice(ip)
		answer = []netip.Addr{a.Unmap()}
	}
	for _, a := range answer {
		if !dialable(a, name, o) {
			return asked, nil
		}
		tried = append(tried, netip.AddrPortFrom(a, uint16(port)))
	}
	return asked, tried
}
