package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/egress/token"
	"agentbox/internal/sandbox"
)

// guestProxy is where programs in a sandbox without a network of its own find the
// proxy: the guest agent's end of the tunnel.
const guestProxy = "127.0.0.1:3128"

// endless is when tokens end whose sandbox has no end: 2100-01-01. They are dead
// with the sandbox, as all are.
var endless = time.Unix(4102444800, 0)

// maxHosts bounds the hosts that a token lists, in bytes. They only inform, so a
// longer list is left out rather than that there is no token.
const maxHosts = 8 << 10

// Serve lets sandboxes with a network of their own in, by the addresses that are
// registered for them and their tokens, until the context ends. It closes the
// listener.
func (g *Gateway) Serve(ctx context.Context, ln net.Listener) error { return g.door.Serve(ctx, ln) }

// Register says that connections from these addresses, and from no others, are a
// sandbox's, until its way is shut. With one that is another's none is registered.
// Each must be the sandbox's alone: nobody else's packets may come from it.
func (g *Gateway) Register(uid string, addrs []netip.Addr) error {
	w := g.way(uid)
	if w == nil {
		return fmt.Errorf("register addresses for sandbox %s: it has no network: %w", uid, errdefs.ErrFailedPrecondition)
	}
	return g.door.Register(w.session, addrs...)
}

// ProxyURL has a token by which programs in a sandbox name it to their proxy. It
// is dead when the sandbox is, whose life ends until then at the latest; zero:
// nobody knows when. own: they have a network of their own and reach the listener
// over it.
func (g *Gateway) ProxyURL(sb *sandbox.Sandbox, until time.Time, own bool) (string, error) {
	host := guestProxy
	if own {
		host = g.o.Address
	}
	if host == "" {
		return "", sandbox.Refuse(errdefs.ErrNotImplemented, "the proxy of this server has no listener; its operator sets egress.proxy_host")
	}
	if until.IsZero() {
		until = endless
	} else {
		until = until.Add(token.Skew) // it is destroyed about then; its token should not end before it
	}
	t, err := g.o.Keys.Sign(token.Claims{Session: sb.UID, Tenant: sb.Tenant, Hosts: hostsOf(sb.Network), Expires: until})
	if err != nil {
		return "", fmt.Errorf("make the proxy's URL: %w", err)
	}
	return (&url.URL{Scheme: "http", Host: host, User: url.UserPassword("sandbox", passwordPrefix+t)}).String(), nil
}

// hostsOf is a network as a token lists it, with the hosts of presets.
func hostsOf(n sandbox.Network) []string {
	if n.Mode == sandbox.NetworkFull {
		return []string{"*"}
	}
	var hosts []string
	for _, e := range n.Allow {
		if all, ok := policy.Preset(e); ok {
			hosts = append(hosts, all...)
		} else {
			hosts = append(hosts, e)
		}
	}
	if len(strings.Join(hosts, ",")) > maxHosts {
		return nil
	}
	return hosts
}
