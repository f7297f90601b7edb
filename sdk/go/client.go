package agentbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// DefaultURL is where a server is that was told nothing else.
const DefaultURL = "http://127.0.0.1:8700"

// dialTimeout is how long a connection may take to come about.
const dialTimeout = 10 * time.Second

// Client speaks to one server. Many goroutines may use it.
type Client struct {
	Volumes *Volumes
	Secrets *Secrets
	Images  *Images
	Keys    *Keys

	base, key string
	http      *http.Client
}

// Option is a setting of a client.
type Option func(*settings)

type settings struct {
	url, key, socket string
	http             *http.Client
}

// WithURL names the server instead of AGENTBOX_URL.
func WithURL(url string) Option { return func(s *settings) { s.url = url } }

// WithAPIKey is the key instead of AGENTBOX_API_KEY; empty: none is sent.
func WithAPIKey(key string) Option { return func(s *settings) { s.key = key } }

// WithSocket reaches a server of this machine by its local socket, such as
// /run/agentbox/agentbox.sock, which asks its own user and root for no key.
func WithSocket(path string) Option { return func(s *settings) { s.socket = path } }

// WithHTTPClient has requests sent by another HTTP client, for authorities and proxies
// of your own. It must speak HTTP/1.1 for terminals and ports, and should have no time
// limit: commands take as long as they take.
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.http = c } }

// NewClient makes a client. It speaks to nobody yet.
func NewClient(options ...Option) (*Client, error) {
	s := settings{url: os.Getenv("AGENTBOX_URL"), key: os.Getenv("AGENTBOX_API_KEY")}
	for _, o := range options {
		o(&s)
	}
	if s.socket != "" {
		s.url, s.key = "http://localhost", "" // the name is only what requests are written for
	}
	base := cmp.Or(s.url, DefaultURL)
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is no URL of a server, such as %s", base, DefaultURL)
	}
	if s.socket != "" && s.http != nil {
		return nil, errors.New("WithSocket and WithHTTPClient exclude each other")
	}
	c := &Client{base: strings.TrimSuffix(base, "/"), key: s.key, http: s.http}
	if c.http == nil {
		c.http = newHTTPClient(s.socket)
	}
	c.Volumes, c.Secrets, c.Images, c.Keys = &Volumes{c}, &Secrets{c}, &Images{c}, &Keys{c}
	return c, nil
}

// newHTTPClient speaks HTTP/1.1, which WebSockets need, and follows nobody elsewhere: a
// key is for one server. Archives come as they are: compressing them would be the
// sandbox's work.
func newHTTPClient(socket string) *http.Client {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, DisableCompression: true,
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Close lets go of connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Version is what runs on a server.
type Version struct {
	Version string `json:"version"` // of the product
	API     string `json:"api"`     // of the API, such as v1
}

// Version asks the server what it is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return ask[Version](ctx, c, call{method: http.MethodGet, path: "/version"})
}
