package image

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentbox/internal/image/oci"
)

// Dial makes connections, over "tcp" to "host:port".
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// except dials some hosts itself, whatever their addresses.
func (d Dial) except(hosts []string) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if slices.ContainsFunc(hosts, func(h string) bool { return dialedAs(h, addr) }) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		return d(ctx, network, addr)
	}
}

// dialedAs reports whether a host, with port if it is not the default one, is what
// is dialled as addr.
func dialedAs(host, addr string) bool {
	return strings.EqualFold(host, addr) || strings.EqualFold(host+":443", addr) || strings.EqualFold(host+":80", addr)
}

// named are the hosts that the operator pointed at, so that they may be anywhere,
// in private networks or on this machine: the registry, if the pattern leaves no
// choice of it; mirrors; what may be insecure; the proxies of the environment,
// which then judge for themselves. Where a registry's redirects and its token
// service are, the registry says.
func (f Fetcher) named(ref oci.Ref, pattern string) []string {
	hosts := slices.Clone(f.Pull.Registry.Insecure)
	if registry, _, ok := strings.Cut(pattern, "/"); !ok || !strings.ContainsAny(registry, `*?[\`) {
		hosts = append(hosts, ref.Registry())
	}
	for _, mirrors := range f.Pull.Registry.Mirrors {
		for _, m := range mirrors {
			if u, err := url.Parse(m); err == nil {
				hosts = append(hosts, u.Host)
			}
		}
	}
	for _, scheme := range []string{"http", "https"} {
		sample := &http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.invalid"}}
		if proxy, err := http.ProxyFromEnvironment(sample); err == nil && proxy != nil {
			hosts = append(hosts, proxy.Host)
		}
	}
	return hosts
}
