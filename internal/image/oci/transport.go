package oci

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// errPlain is that a registry would be talked to without encryption.
var errPlain = errors.New("refused to speak plain HTTP to a registry that is not on this machine: name it with --insecure-registry if that is what you want")

// guard is the transport for one registry. It speaks plain HTTP only where that
// is allowed, wherever a redirect or a token service may point.
type guard struct {
	next, unverified http.RoundTripper
	insecure         []string // hosts, with port if it is not the default one
	loopback         bool     // the registry is on this machine
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	insecure := slices.Contains(g.insecure, req.URL.Host)
	if req.URL.Scheme != "https" && !insecure && !(g.loopback && isLoopback(req.URL.Host)) {
		return nil, fmt.Errorf("%s: %w", req.URL.Host, errPlain)
	}
	if insecure {
		return g.unverified.RoundTrip(req)
	}
	return g.next.RoundTrip(req)
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newTransports makes the connections to registries: one that checks
// certificates against the system's and opts.CAFile's, and one that does not.
func newTransports(opts RegistryOptions) (verified, unverified *http.Transport, err error) {
	verified = http.DefaultTransport.(*http.Transport).Clone()
	verified.DisableCompression = true // blobs are taken as they are
	verified.ResponseHeaderTimeout = time.Minute
	verified.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.Dial != nil {
		verified.DialContext = opts.Dial
	}
	if opts.CAFile != "" {
		if verified.TLSClientConfig.RootCAs, err = certificates(opts.CAFile); err != nil {
			return nil, nil, err
		}
	}
	unverified = verified.Clone()
	unverified.TLSClientConfig.InsecureSkipVerify = true
	return verified, unverified, nil
}

func certificates(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without any
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form: %w", file, errdefs.ErrInvalidArgument)
	}
	return pool, nil
}
