package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/config"
)

// Variables that name the server that commands talk to.
const (
	urlVariable     = "AGENTBOX_URL"
	keyVariable     = "AGENTBOX_API_KEY"
	cacertVariable  = "AGENTBOX_CACERT"
	profileVariable = "AGENTBOX_PROFILE"
)

// localProfile is the name of this machine's server, by its local socket.
const localProfile = "local"

const (
	apiPrefix = "/api/v1"
	// maxAnswer bounds what is read of a server's answer, in bytes.
	maxAnswer = 64 << 20
	// dialTimeout is how long a connection may take to come about.
	dialTimeout = 10 * time.Second
)

// remote is a server: this machine's by its local socket, or one by URL.
type remote struct {
	base, key string
	where     string // for messages
	socket    bool
	client    *http.Client
}

// server is where a server is and what it asks for.
type server struct {
	URL    string `json:"url"`
	Key    string `json:"key,omitempty"`
	CACert string `json:"cacert,omitempty"`
}

// serverFlags are the options that name a server.
func serverFlags(cmd *cobra.Command) {
	fl := cmd.PersistentFlags()
	fl.String("url", "", "the server's `URL` ("+urlVariable+"); its key is in "+keyVariable)
	fl.String("profile", "", "the server by the name of a profile ("+profileVariable+"); "+localProfile+": this machine's")
	_ = cmd.RegisterFlagCompletionFunc("profile", completeProfiles) // the flag is there
	fl.String("cacert", "", "`FILE` of the authority that signed the server's certificate ("+cacertVariable+")")
}

// remote finds the server of a command: by its flags, the variables, the profile
// in use, or else on this machine.
func (a *App) remote(cmd *cobra.Command) (*remote, error) {
	s, err := chosenServer(cmd)
	if err != nil {
		return nil, err
	}
	if s.URL != "" {
		return byURL(s)
	}
	flags := map[string]string{}
	if f := cmd.Flags().Lookup("data-dir"); f != nil && f.Changed {
		flags[f.Name] = f.Value.String()
	}
	loaded, err := config.Load(config.Sources{File: config.DefaultFile(os.LookupEnv), Env: os.LookupEnv, Flags: flags})
	if err != nil {
		return nil, err
	}
	return bySocket(loaded.Socket), nil
}

// chosenServer is the server that a command was told of; none: this machine's.
func chosenServer(cmd *cobra.Command) (server, error) {
	flag := func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	ca := cmp.Or(flag("cacert"), os.Getenv(cacertVariable))
	given := server{Key: os.Getenv(keyVariable), CACert: ca}
	switch dataDir := cmd.Flags().Lookup("data-dir"); {
	case flag("url") != "" && flag("profile") != "":
		return server{}, errors.New("--url and --profile exclude each other")
	case flag("url") != "":
		given.URL = flag("url")
		return given, nil
	case flag("profile") != "":
		return profileServer(flag("profile"), ca)
	case dataDir != nil && dataDir.Changed:
		return server{}, nil
	case os.Getenv(urlVariable) != "":
		given.URL = os.Getenv(urlVariable)
		return given, nil
	default:
		return profileServer(os.Getenv(profileVariable), ca)
	}
}

// profileServer is the server of a profile, without a name that of the one in use.
func profileServer(name, ca string) (server, error) {
	if name == localProfile {
		return server{}, nil
	}
	p, err := readProfiles()
	if err != nil {
		return server{}, err
	}
	if name == "" {
		name = p.Current
	}
	if name == "" || name == localProfile {
		return server{}, nil
	}
	s, err := p.get(name)
	s.CACert = cmp.Or(ca, s.CACert)
	return s, err
}

// checkURL reads the URL of a server.
func checkURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is no URL of a server, such as http://127.0.0.1:8700", s)
	}
	return u, nil
}

func byURL(s server) (*remote, error) {
	u, err := checkURL(s.URL)
	if err != nil {
		return nil, err
	}
	t := newTransport()
	t.Proxy = http.ProxyFromEnvironment
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	if s.CACert != "" && u.Scheme == "https" {
		roots, err := authorities(s.CACert)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &remote{base: strings.TrimSuffix(s.URL, "/"), key: s.Key, where: s.URL, client: httpClient(t)}, nil
}

// maxCACert bounds a file of authorities, in bytes.
const maxCACert = 16 << 20

// authorities reads the file of --cacert.
func authorities(file string) (*x509.CertPool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of --cacert: %w", err)
	}
	defer f.Close()
	pem, err := io.ReadAll(io.LimitReader(f, maxCACert))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of --cacert: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the certificate of --cacert: %s has none in PEM form", file)
	}
	return roots, nil
}

func bySocket(path string) *remote {
	t := newTransport()
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", path)
	}
	// The name is only what the request is written for; the socket needs no key.
	return &remote{base: "http://localhost", where: path, socket: true, client: httpClient(t)}
}

// newTransport speaks HTTP/1.1, which WebSockets need. Archives come as they are:
// compressing them would be the sandbox's work.
func newTransport() *http.Transport {
	return &http.Transport{TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, DisableCompression: true}
}

// httpClient follows nobody elsewhere: a key is for one server.
func httpClient(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// unreachable says why there was no answer, and what to do about it.
func (r *remote) unreachable(err error) error {
	var cause error = err
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		cause = wrapped.Err
	}
	return &unreachableError{where: r.where, hint: r.hint(cause), err: cause}
}

func (r *remote) hint(err error) string {
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, os.ErrPermission):
		return "the socket is for the server's own user and root; others need its URL in " + urlVariable + " and a key in " + keyVariable
	case errors.As(err, &authority):
		return "name the authority that signed its certificate with --cacert"
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "it has no TLS: its URL begins with http://"
	case r.socket:
		return "start one with agentbox serve, or name another with --url, --profile or " + urlVariable
	default:
		return "is it running there? It is started with agentbox serve"
	}
}

// unreachableError is the lack of an answer.
type unreachableError struct {
	where, hint string
	err         error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("reach the server at %s: %v\n(%s)", e.where, e.err, e.hint)
}

func (e *unreachableError) Unwrap() error { return e.err }
