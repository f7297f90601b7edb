package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Origins decides which web pages a browser may speak for. A page that a user
// happens to have open must not reach the service, neither directly nor by a
// name that it made point to this machine.
type Origins struct {
	allowed []string
	// loopback requires that clients name the server by a loopback address, or
	// by the host of an allowed origin: the Host header tells a page of another
	// site, whose name was made to point here, from a local client. Without keys
	// nothing else does.
	loopback bool
}

// NewOrigins reads the list of allowed origins. loopback is for a server that
// only this machine reaches.
func NewOrigins(allow []string, loopback bool) (*Origins, error) {
	o := &Origins{loopback: loopback}
	for _, s := range allow {
		scheme, host, ok := splitOrigin(s)
		if !ok {
			return nil, &sandbox.InvalidError{Field: "allow_origin", Value: s, Allowed: "an origin such as https://app.example or http://localhost:3000"}
		}
		o.allowed = append(o.allowed, scheme+"://"+host)
	}
	return o, nil
}

// Allowed reports whether the list has the origin.
func (o *Origins) Allowed(origin string) bool {
	scheme, host, ok := splitOrigin(origin)
	return ok && slices.Contains(o.allowed, scheme+"://"+host)
}

// named reports whether a Host header is that of an allowed origin.
func (o *Origins) named(host string) bool {
	return slices.ContainsFunc(o.allowed, func(origin string) bool {
		scheme, allowed, _ := strings.Cut(origin, "://")
		return allowed == canonicalHost(scheme, host)
	})
}

// Check refuses a request that a page of a foreign site caused.
func (o *Origins) Check(r *http.Request) error {
	if o.loopback && !isLoopbackHost(r.Host) && !o.named(r.Host) {
		return forbidden("the server is for this machine only: reach it as 127.0.0.1, [::1] or localhost; behind a proxy, name its address with --allow-origin")
	}
	origin, one := single(r.Header, "Origin")
	site, oneSite := single(r.Header, "Sec-Fetch-Site")
	if !one || !oneSite {
		return forbidden("Origin and Sec-Fetch-Site may be given once")
	}
	if origin != "" {
		if o.Allowed(origin) {
			return nil
		}
		scheme, host, ok := splitOrigin(origin)
		if !ok || host != canonicalHost(scheme, r.Host) {
			return forbidden("requests of web pages from other origins are refused; --allow-origin lets one in")
		}
	}
	switch site {
	case "", "same-origin", "none":
		return nil
	default: // same-site, cross-site, and what browsers may think of
		return forbidden("requests of web pages from other sites are refused; --allow-origin lets one in")
	}
}

func forbidden(text string) error { return sandbox.Refuse(errdefs.ErrPermissionDenied, "%s", text) }

func unauthenticated(text string) error {
	return sandbox.Refuse(errdefs.ErrUnauthenticated, "%s", text)
}

// single gives the value of a header that may be there once.
func single(h http.Header, name string) (string, bool) {
	switch v := h[http.CanonicalHeaderKey(name)]; len(v) {
	case 0:
		return "", true
	case 1:
		return v[0], true
	default:
		return "", false
	}
}

// splitOrigin reads scheme://host[:port]; "null" is none.
func splitOrigin(s string) (scheme, host string, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.Opaque != "" ||
		strings.ContainsAny(s, "?#*") || u.Hostname() == "" {
		return "", "", false
	}
	return u.Scheme, canonicalHost(u.Scheme, u.Host), true
}

// canonicalHost is in lower case and without the scheme's own port.
func canonicalHost(scheme, host string) string {
	host = strings.ToLower(host)
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// isLoopbackHost reads a Host header.
func isLoopbackHost(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if port == "" || strings.Trim(port, "0123456789") != "" {
			return false
		}
		host = h
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Zone() == "" && a.Unmap().IsLoopback()
}

// IsLoopback reports whether a listener on address, host:port, can be reached
// from this machine only. Names other than localhost are not looked up: what
// they point to can change.
func IsLoopback(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != "" && isLoopbackHost(address)
}
