package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// RegistryOptions are the operator's settings for registries.
type RegistryOptions struct {
	// Mirrors are asked before the registry itself, in order: URLs by the host
	// of the registry. A path in the URL stands before the repository's name.
	Mirrors map[string][]string
	// CAFile holds certificates, in PEM form, that are trusted besides the
	// system's (SSL_CERT_FILE replaces those).
	CAFile string
	// Insecure are hosts that plain HTTP, or a certificate that can't be
	// checked, is accepted from. Those of this machine need not be named for
	// HTTP.
	Insecure []string
	// Dial makes the connections, over "tcp" to "host:port", also where redirects
	// and token services point. nil: to any address.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Keychain knows the credentials. nil: Docker's configuration, with its
	// credential helpers.
	Keychain authn.Keychain
	// Parallel is how many layers are fetched at once. 0: 3.
	Parallel int
	// Backoff is the wait after the first failure that may pass; each further
	// one waits twice as long. 0: 1 s.
	Backoff time.Duration
	// Stall is how long a transfer may stand still before it is begun again.
	// 0: 1 minute.
	Stall time.Duration
}

// Registry pulls images.
type Registry struct {
	opts                 RegistryOptions
	verified, unverified *http.Transport
}

// NewRegistry checks the options. [Registry.Close] ends its connections.
func NewRegistry(opts RegistryOptions) (*Registry, error) {
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 3
	}
	if opts.Backoff <= 0 {
		opts.Backoff = time.Second
	}
	if opts.Stall <= 0 {
		opts.Stall = time.Minute
	}
	for host, mirrors := range opts.Mirrors {
		for _, m := range mirrors {
			if u, err := url.Parse(m); host == "" || err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.User != nil {
				return nil, fmt.Errorf("bad mirror %q of %q: want HOST=URL, such as registry.example=https://mirror.example: %w", m, host, errdefs.ErrInvalidArgument)
			}
		}
	}
	r := &Registry{opts: opts}
	var err error
	r.verified, r.unverified, err = newTransports(opts)
	return r, err
}

// Close ends the connections.
func (r *Registry) Close() {
	r.verified.CloseIdleConnections()
	r.unverified.CloseIdleConnections()
}

// endpoint is one place that has a repository.
type endpoint struct {
	repo   name.Repository
	plain  bool // it is a mirror that was named with http://
	client *http.Client
}

func (e *endpoint) String() string { return e.repo.Name() }

// url of something in the repository. Its scheme is the authenticated
// transport's to choose.
func (e *endpoint) url(kind, id string) string {
	return (&url.URL{Scheme: e.repo.Scheme(), Host: e.repo.RegistryStr(), Path: "/v2/" + e.repo.RepositoryStr() + "/" + kind + "/" + id}).String()
}

// endpoints lists where a reference can be had: mirrors, then the registry.
func (r *Registry) endpoints(ref Ref) ([]*endpoint, error) {
	repo := ref.ref.Context()
	var all []*endpoint
	for _, m := range r.mirrors(ref.Registry()) {
		u, err := url.Parse(m)
		if err != nil {
			return nil, fmt.Errorf("read mirror: %w", err)
		}
		e, err := r.endpoint(u.Host, strings.Trim(u.Path+"/"+repo.RepositoryStr(), "/"), u.Scheme == "http")
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	e, err := r.endpoint(repo.RegistryStr(), repo.RepositoryStr(), false)
	return append(all, e), err
}

// mirrors of a registry, by any of the names that it has.
func (r *Registry) mirrors(host string) []string {
	for name, urls := range r.opts.Mirrors {
		if ref, err := ParseRef(name + "/x"); err == nil && ref.Registry() == host {
			return urls
		}
	}
	return nil
}

func (r *Registry) endpoint(host, repo string, plain bool) (*endpoint, error) {
	var opts []name.Option
	if plain || slices.Contains(r.opts.Insecure, host) {
		opts = append(opts, name.Insecure)
	}
	reg, err := name.NewRegistry(host, opts...)
	if err != nil {
		return nil, fmt.Errorf("bad registry %q: %w: %w", host, err, errdefs.ErrInvalidArgument)
	}
	return &endpoint{repo: reg.Repo(repo), plain: plain}, nil
}

// connect authenticates to an endpoint, for reading.
func (r *Registry) connect(ctx context.Context, e *endpoint) error {
	auth, err := authn.Resolve(ctx, r.opts.Keychain, e.repo)
	if err != nil {
		return fmt.Errorf("find credentials for %s: %w", e.repo.RegistryStr(), err)
	}
	g := &guard{next: r.verified, unverified: r.unverified, insecure: r.opts.Insecure, loopback: isLoopback(e.repo.RegistryStr())}
	if e.plain { // the operator wrote http://
		g.insecure = append(slices.Clone(g.insecure), e.repo.RegistryStr())
	}
	return r.retry(ctx, func() error {
		t, err := transport.NewWithContext(ctx, e.repo.Registry, auth, g, []string{e.repo.Scope(transport.PullScope)})
		if err != nil {
			return explain(err, e.repo.RegistryStr())
		}
		e.client = &http.Client{Transport: t}
		return nil
	})
}

// explain gives what go-containerregistry returned a class.
func explain(err error, what string) error {
	var te *transport.Error
	if errors.As(err, &te) {
		return &statusError{what: what, code: te.StatusCode, detail: diagnose(te)}
	}
	return fmt.Errorf("reach %s: %w", what, err)
}

func diagnose(te *transport.Error) string {
	var all []string
	for _, d := range te.Errors[:min(len(te.Errors), 3)] {
		all = append(all, string(d.Code)+" "+d.Message)
	}
	return printable(strings.Join(all, ", "))
}

// printable makes a server's words fit for a message.
func printable(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
