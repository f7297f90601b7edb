// Package sandbox is the client of the documented gRPC interface, sandbox.v1: a class
// with one session. The server's own API has more: package agentbox/sdk/go.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	agentbox "agentbox/sdk/go"
	sandboxv1 "agentbox/sdk/go/sandbox/v1"
	"agentbox/sdk/go/sandbox/v1/sandboxv1connect"
)

const (
	// DefaultURL is where a server is that was told nothing else.
	DefaultURL = "http://localhost:50051"
	// DefaultTimeout bounds a command that says nothing else.
	DefaultTimeout = 30 * time.Second
	// script is the file of RunPython, in the session's /workspace.
	script = "_temp_script.py"
	// cleanUp bounds the removal of that file.
	cleanUp = 10 * time.Second
)

// indexHosts are what PipInstall needs in the session's list.
var indexHosts = []string{"pypi.org", "files.pythonhosted.org"}

// ErrNoSession is the error of calls that need a session.
var ErrNoSession = errors.New("No active session. Call create() first.") //nolint:staticcheck // the documented text

// Sandbox has at most one session. Many goroutines may use it.
type Sandbox struct {
	rpc       sandboxv1connect.SandboxServiceClient
	transport *http.Transport

	mu    sync.Mutex
	id    string
	hosts []string
}

// Option is a setting of a Sandbox.
type Option func(*settings)

type settings struct{ key string }

// WithAPIKey is the key instead of AGENTBOX_API_KEY; empty: none is sent.
func WithAPIKey(key string) Option { return func(s *settings) { s.key = key } }

// New makes a client of the server at a URL; empty: DefaultURL. With http it speaks HTTP/2
// without TLS, as gRPC does. It speaks to nobody yet.
func New(url string, options ...Option) *Sandbox {
	s := settings{key: os.Getenv("AGENTBOX_API_KEY")}
	for _, o := range options {
		o(&s)
	}
	url = strings.TrimSuffix(cmp.Or(url, DefaultURL), "/")
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, Protocols: new(http.Protocols), TLSHandshakeTimeout: 10 * time.Second}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	client := connect.NewClient(connecthttp.NewTransport(keyed{t, s.key}, url, connecthttp.WithGRPC(), connecthttp.WithReadMaxBytes(0)))
	return &Sandbox{rpc: sandboxv1connect.NewSandboxServiceClient(client), transport: t}
}

// keyed sends a key with each request.
type keyed struct {
	to  http.RoundTripper
	key string
}

// Do implements connecthttp.HTTPClient.
func (k keyed) Do(r *http.Request) (*http.Response, error) {
	if k.key != "" {
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	return k.to.RoundTrip(r)
}

// Client is the generated client, for calls that Sandbox has no method for.
func (s *Sandbox) Client() sandboxv1connect.SandboxServiceClient { return s.rpc }

// Close lets go of connections; the session goes on.
func (s *Sandbox) Close() { s.transport.CloseIdleConnections() }

// SessionID is the current session; empty: none.
func (s *Sandbox) SessionID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// AllowedHosts is a copy of the session's list.
func (s *Sandbox) AllowedHosts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hosts)
}

// NetworkEnabled reports whether that list has anything.
func (s *Sandbox) NetworkEnabled() bool { return len(s.AllowedHosts()) > 0 }

// Options are what a session is to be.
type Options struct {
	SessionID    string   // yours; empty: a random UUID
	TenantID     string   // whose storage it has; empty: nobody's
	AllowedHosts []string // empty: the default hosts
}

// Create makes a session, or finds the one of Options.SessionID, and makes it the current
// one.
func (s *Sandbox) Create(ctx context.Context, o Options) (*sandboxv1.SessionInfo, error) {
	q := &sandboxv1.CreateSessionRequest{AllowedHosts: o.AllowedHosts}
	if o.SessionID != "" {
		q.SessionId = &o.SessionID
	}
	if o.TenantID != "" {
		q.TenantId = &o.TenantID
	}
	a, err := s.rpc.CreateSession(ctx, q)
	if err != nil {
		return nil, asError(err)
	}
	s.set(a.GetSession().GetSessionId(), a.GetSession().GetAllowedHosts())
	return a.GetSession(), nil
}

func (s *Sandbox) set(id string, hosts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.hosts = id, slices.Clone(hosts)
}

func (s *Sandbox) session() (string, error) {
	if id := s.SessionID(); id != "" {
		return id, nil
	}
	return "", ErrNoSession
}

// Destroy ends the current session; false: there was none, or the server has none such.
func (s *Sandbox) Destroy(ctx context.Context) (bool, error) {
	id, err := s.session()
	if err != nil {
		return false, nil //nolint:nilerr // as documented
	}
	a, err := s.rpc.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: id})
	if err != nil {
		return false, asError(err)
	}
	s.set("", nil)
	return a.GetSuccess(), nil
}

// ExecOptions are for Exec.
type ExecOptions struct {
	Timeout time.Duration // 0: DefaultTimeout; whole seconds
	Workdir string        // empty: /workspace
}

// Exec runs a command by /bin/sh -c and waits for its end. A command that fails is an answer.
func (s *Sandbox) Exec(ctx context.Context, command string, o ExecOptions) (*sandboxv1.ExecResponse, error) {
	id, err := s.session()
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(o.Timeout, DefaultTimeout)
	a, err := s.rpc.Exec(ctx, &sandboxv1.ExecRequest{
		SessionId: id, Command: command, Timeout: int32(max(timeout.Seconds(), 1)), Workdir: cmp.Or(o.Workdir, "/workspace"),
	})
	return a, asError(err)
}

// ExecStream runs a command and goes through its output while it runs; the last message is
// of the type exit or error. Who leaves the loop ends the command.
func (s *Sandbox) ExecStream(ctx context.Context, command, workdir string) iter.Seq2[*sandboxv1.ExecStreamResponse, error] {
	return func(yield func(*sandboxv1.ExecStreamResponse, error) bool) {
		id, err := s.session()
		if err != nil {
			yield(nil, err)
			return
		}
		stream, err := s.rpc.ExecStream(ctx, &sandboxv1.ExecStreamRequest{SessionId: id, Command: command, Workdir: cmp.Or(workdir, "/workspace")})
		if err != nil {
			yield(nil, asError(err))
			return
		}
		defer stream.Close() //nolint:errcheck // it was read, or is given up
		for {
			m, err := stream.Receive()
			if errors.Is(err, io.EOF) || !yield(m, asError(err)) || err != nil {
				return
			}
		}
	}
}

// WriteFile writes a text; the mode is w, which empty is, too, or a to append.
func (s *Sandbox) WriteFile(ctx context.Context, path, content, mode string) error {
	id, err := s.session()
	if err != nil {
		return err
	}
	a, err := s.rpc.WriteFile(ctx, &sandboxv1.WriteFileRequest{SessionId: id, Path: path, Content: content, Mode: cmp.Or(mode, "w")})
	switch {
	case err != nil:
		return asError(err)
	case !a.GetSuccess():
		return fmt.Errorf("Failed to write file: %s", a.GetError()) //nolint:staticcheck // the documented text
	}
	return nil
}

// ReadFile reads a text.
func (s *Sandbox) ReadFile(ctx context.Context, path string) (string, error) {
	id, err := s.session()
	if err != nil {
		return "", err
	}
	a, err := s.rpc.ReadFile(ctx, &sandboxv1.ReadFileRequest{SessionId: id, Path: path})
	switch {
	case err != nil:
		return "", asError(err)
	case !a.GetSuccess():
		return "", fmt.Errorf("Failed to read file: %s", a.GetError()) //nolint:staticcheck // the documented text
	}
	return a.GetContent(), nil
}

// PipInstall installs packages of Python. The hosts of the package index must be in
// AllowedHosts.
func (s *Sandbox) PipInstall(ctx context.Context, packages ...string) (*sandboxv1.ExecResponse, error) {
	id, err := s.session()
	if err != nil {
		return nil, err
	}
	hosts := s.AllowedHosts()
	missing := slices.DeleteFunc(slices.Clone(indexHosts), func(h string) bool {
		return slices.Contains(hosts, h) || slices.Contains(hosts, "*")
	})
	if len(missing) > 0 {
		return nil, fmt.Errorf("pip install requires %s in allowedHosts", strings.Join(missing, ", "))
	}
	a, err := s.rpc.PipInstall(ctx, &sandboxv1.PipInstallRequest{SessionId: id, Packages: packages})
	return a, asError(err)
}

// RunPython runs a program of Python; a timeout of 0 is DefaultTimeout. Its file is removed in
// any case.
func (s *Sandbox) RunPython(ctx context.Context, code string, timeout time.Duration) (*sandboxv1.ExecResponse, error) {
	if err := s.WriteFile(ctx, script, code, "w"); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		_, _ = s.Exec(ctx, "rm -f "+script, ExecOptions{}) // the answer of the program counts
	}()
	return s.Exec(ctx, "python3 "+script, ExecOptions{Timeout: timeout})
}

// codes of agentbox.Error for those of gRPC.
var codes = map[connect.Code]string{
	connect.CodeInvalidArgument: "invalid_value", connect.CodeUnauthenticated: "unauthenticated", connect.CodePermissionDenied: "forbidden",
	connect.CodeNotFound: "not_found", connect.CodeAlreadyExists: "already_exists", connect.CodeFailedPrecondition: "conflict", connect.CodeAborted: "conflict",
	connect.CodeOutOfRange: "out_of_range", connect.CodeUnimplemented: "unsupported", connect.CodeResourceExhausted: "limit_exceeded",
	connect.CodeUnavailable: "unavailable", connect.CodeDeadlineExceeded: "timeout", connect.CodeCanceled: "canceled",
}

// asError is a status as the error that the other client has for it.
func asError(err error) error {
	var status *connect.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), !errors.As(err, &status):
		return err
	}
	code := cmp.Or(codes[status.Code()], "internal")
	if code == "limit_exceeded" && strings.Contains(status.Message(), "larger than") {
		code = "too_large" // of a message, here or there
	}
	return &agentbox.Error{Code: code, Detail: cmp.Or(status.Message(), err.Error())}
}
