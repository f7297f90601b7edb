package dial

import (
	"net"
	"net/netip"
)

// opening says what lets sandboxes reach the addresses of a class.
type opening int

const (
	never    opening = iota // nothing: these are no addresses of a single host
	single                  // a range of this one address
	inClass                 // a range that lies within the class
	anyRange                // a range that the address is in
	byHost                  // that, or an exact name of Options.Hosts
)

// class is a kind of addresses that are not public.
type class struct {
	name     string
	opening  opening
	prefixes []netip.Prefix
}

// classes are all that is not public, special ones before those around them.
// Sources: the IANA registries of special-purpose IPv4 and IPv6 addresses, RFC
// 4291 and 3879 (older forms), and the documentation of the clouds for metadata.
var classes = []class{
	// A machine's rights for whoever asks: Amazon (also for containers), Google
	// and most others; Alibaba; Azure's, which is a public address; Oracle.
	{"metadata", single, prefixes("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/112", "fd20:ce::254/128")},
	{"loopback", inClass, prefixes("127.0.0.0/8", "::1/128")},
	{"link-local", inClass, prefixes("169.254.0.0/16", "fe80::/10")},
	{"unspecified", never, prefixes("0.0.0.0/8", "::/128")}, // Linux connects these to itself
	{"private", byHost, prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")},
	{"shared", byHost, prefixes("100.64.0.0/10")}, // of carriers, RFC 6598; used by overlay networks
	{"broadcast", never, prefixes("255.255.255.255/32")},
	{"multicast", never, prefixes("224.0.0.0/4", "ff00::/8")},
	{"documentation", anyRange, prefixes("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")},
	{"benchmark", anyRange, prefixes("198.18.0.0/15", "2001:2::/48")},
	// IPv4 in IPv6: mapped, compatible and translated; NAT64 and its local
	// prefix; Teredo, 6to4 and its relays.
	{"IPv4 in IPv6", never, prefixes("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96")},
	{"NAT64", never, prefixes("64:ff9b::/96", "64:ff9b:1::/48")},
	{"Teredo", never, prefixes("2001::/32")},
	{"6to4", never, prefixes("2002::/16", "192.88.99.0/24")},
	{"site-local", anyRange, prefixes("fec0::/10")},
	{"reserved", anyRange, prefixes("192.0.0.0/24", "240.0.0.0/4", "2001::/23")},
}

// ofHost is the class of the addresses that this machine has: what listens there
// is often meant for itself, and its firewall does not stand before it.
var ofHost = class{name: "this host", opening: single}

// outside is what is beyond the addresses that are given to hosts, 2000::/3.
var (
	unicast = netip.MustParsePrefix("2000::/3")
	outside = class{name: "reserved", opening: anyRange}
)

func prefixes(all ...string) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(all))
	for _, s := range all {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// classify gives the class of an address, the prefix of it that has it, and false
// if the address is public.
func classify(addr netip.Addr) (class, netip.Prefix, bool) {
	for _, c := range classes {
		for _, p := range c.prefixes {
			if p.Contains(addr) {
				return c, p, true
			}
		}
	}
	return outside, netip.Prefix{}, !addr.Is4() && !unicast.Contains(addr)
}

// isOwn reports whether this machine has an address: the kernel then talks to it
// from the address itself. To connect a UDP socket sends nothing.
func isOwn(addr netip.Addr) bool {
	const discard = 9 // any port will do
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, discard)))
	if err != nil {
		return false // no route: nor has TCP one
	}
	defer conn.Close()
	from, ok := conn.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == addr
}
