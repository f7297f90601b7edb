package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"agentbox/internal/sandbox"
)

// checkProxy checks where the listener of the proxy is, and how it is called.
func (l *Loaded) checkProxy(from origin) []error {
	var errs []error
	wrong := func(key, value, allowed string) {
		errs = append(errs, from.of(key, &sandbox.InvalidError{Field: key, Value: value, Allowed: allowed}))
	}
	e := &l.Egress
	if a, err := netip.ParseAddr(e.ProxyHost); err == nil && a.IsUnspecified() || err != nil && e.ProxyHost != "" && !isHostname(e.ProxyHost) {
		wrong("egress.proxy_host", e.ProxyHost, "a host name or address by which sandboxes reach this machine, without a port")
	}
	if e.ProxyPort > math.MaxUint16 {
		wrong("egress.proxy_port", fmt.Sprint(e.ProxyPort), "1 to 65535")
	}
	if _, err := netip.ParseAddr(e.ProxyListen); err != nil && e.ProxyListen != "" {
		wrong("egress.proxy_listen", e.ProxyListen, "an address of this machine such as 172.17.0.1, without a port")
	}
	if e.ProxyListen != "" && e.ProxyHost == "" {
		errs = append(errs, from.of("egress.proxy_listen", errors.New("egress.proxy_listen is for the listener that egress.proxy_host turns on: set both")))
	}
	return errs
}

// isHostname takes what may stand in a URL as a host.
func isHostname(s string) bool {
	ok := func(c rune) bool {
		return c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return len(s) <= 253 && !strings.ContainsFunc(s, func(c rune) bool { return !ok(c) })
}

// ProxyAddress is where the listener for sandboxes with a network of their own is.
// Empty: there is none.
func (e *Egress) ProxyAddress() string {
	if e.ProxyHost == "" {
		return ""
	}
	host := e.ProxyListen
	if _, err := netip.ParseAddr(e.ProxyHost); host == "" && err == nil {
		host = e.ProxyHost
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), strconv.FormatInt(e.ProxyPort, 10))
}
