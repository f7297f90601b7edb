package dial

import (
	"context"
	"net"
	"net/netip"
)

// Resolver finds the addresses of a name.
type Resolver interface {
	// Resolve is asked with names as policy.Target has them. They are absolute:
	// no search domain is to be put behind them. No addresses and no error is as
	// good as an error.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
}

// NewResolver asks the DNS server, or those of this machine's settings if server
// is zero; names in this machine's hosts file need neither. It is Go's own
// resolver whatever the build: that of the C library takes more spellings for
// addresses.
func NewResolver(server netip.AddrPort) Resolver {
	r := &net.Resolver{PreferGo: true}
	if server.IsValid() {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.String())
		}
	}
	return dns{r}
}

type dns struct{ *net.Resolver }

// Resolve implements Resolver. The dot at the end keeps search domains out. The
// addresses of A records come inside IPv6 addresses, so all of that form are made
// IPv4, and judged as what they then are.
func (d dns) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := d.LookupNetIP(ctx, "ip", name+".")
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}
