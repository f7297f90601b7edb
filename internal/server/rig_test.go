package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a running server.
type world struct {
	*server.Server
	t           *testing.T
	url, socket string
	admin, user string // keys
	log         *buffer
	records     *records
	client      *http.Client
	stop        func() error
	tcp         net.Addr
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type records struct {
	mu  sync.Mutex
	all []audit.Record
}

func (r *records) Write(rec audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec)
	return nil
}

func (r *records) list() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]audit.Record(nil), r.all...)
}

// start serves on a free port and a local socket, with routes added by add.
func start(t *testing.T, policy auth.Policy, opts server.Options, add ...server.Route) *world {
	t.Helper()
	w := &world{t: t, log: &buffer{}, records: &records{}, client: &http.Client{Transport: &http.Transport{}}}
	keyring := auth.NewKeyring(&authtest.Memory{})
	var err error
	if _, w.admin, err = keyring.Create(t.Context(), "ops", "", true); err != nil {
		t.Fatal(err)
	}
	if _, w.user, err = keyring.Create(t.Context(), "acme", "", false); err != nil {
		t.Fatal(err)
	}
	gate, err := auth.NewGate(keyring, policy)
	if err != nil {
		t.Fatal(err)
	}
	opts.Gate, opts.Origins, opts.NoAuth, opts.Recorder = gate, gate.Origins(), policy.NoAuth, w.records
	opts.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Server = server.New(opts)
	for _, r := range add {
		w.Router().Handle(r)
	}
	w.listen()
	return w
}

func (w *world) listen() {
	w.t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.socket = filepath.Join(w.t.TempDir(), "s")
	local, err := server.ListenLocal(w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.tcp, w.url = tcp.Addr(), "http://"+tcp.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Serve(ctx, tcp, local) }()
	var once sync.Once
	w.stop = func() (err error) {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	w.t.Cleanup(func() {
		w.client.CloseIdleConnections()
		if err := w.stop(); err != nil {
			w.t.Errorf("stopped with %v", err)
		}
	})
}

// local is a client of the local socket.
func (w *world) local() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.socket)
	}}}
}

// do sends a request with headers in pairs.
func (w *world) do(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	w.t.Helper()
	return w.with(w.client, method, w.url+path, body, headers...)
}

func (w *world) with(c *http.Client, method, url string, body io.Reader, headers ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

// problem wants the one form of errors.
func problem(t *testing.T, resp *http.Response, body string, status int, code server.Code) {
	t.Helper()
	var p server.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != status || p.Code != code || p.Detail == "" ||
		p.RequestID == "" || p.RequestID != resp.Header.Get("X-Request-ID") || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("answered %d %s %q; want %d %s", resp.StatusCode, resp.Header, body, status, code)
	}
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}
