package rpc_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/egress/policy"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/guest/client"
	"agentbox/internal/image"
	"agentbox/internal/manager"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with the door and sandboxes that isolate nothing.
type world struct {
	t           *testing.T
	url         string
	acme, other string // keys of two owners
	keys        *auth.Keyring
	boxes       *manager.Manager
	audit       *audit.Log
	router      *server.Router
	stop        func()
}

func start(t *testing.T, change ...func(*server.Options, *rpc.Parts)) *world {
	t.Helper()
	keys := auth.NewKeyring(&authtest.Memory{})
	w := &world{t: t, boxes: newManager(t), keys: keys}
	for owner, key := range map[string]*string{"acme": &w.acme, "other": &w.other} {
		var err error
		if _, *key, err = keys.Create(t.Context(), owner, "", false); err != nil {
			t.Fatal(err)
		}
	}
	gate, err := auth.NewGate(keys, auth.Policy{AllowOrigin: []string{"https://app.example"}})
	if err != nil {
		t.Fatal(err)
	}
	if w.audit, err = audit.Open(t.TempDir(), audit.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.audit.Close() })
	opts := server.Options{Gate: gate, Origins: gate.Origins(), Recorder: w.audit, StopGrace: time.Second}
	parts := rpc.Parts{
		Sandboxes: w.boxes, Audit: w.audit, Ready: func(context.Context) error { return nil },
		Session: rpc.Session{Image: "sessions", Workdir: sandbox.WorkspacePath, Hosts: []string{"index.example", "files.example"}, Lifetime: sandbox.Never},
	}
	for _, f := range change {
		f(&opts, &parts)
	}
	s := server.New(opts)
	parts.Draining = s.Draining()
	rpc.New(s.Router(), parts)
	w.router = s.Router()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(w.stop)
	return w
}

func newManager(t *testing.T) *manager.Manager {
	t.Helper()
	host := fake.NewHost(fake.Options{})
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	rt, dir := host.Open(), t.TempDir()
	v, _, err := volume.Open(t.Context(), volume.Options{
		Dir: filepath.Join(dir, "volumes"), Storage: filepath.Join(dir, "storage"), Records: db, Kind: sandbox.VolumeDirectory, PerOwner: 4,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.Open(t.Context(), manager.Options{
		Runtime: rt, Images: images{}, Store: db, Volumes: v, Egress: outside{}, Policy: manager.Policy{Max: sandbox.MaxLimits(64*sandbox.GiB, 4), MaxPerOwner: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []func() error{m.Close, rt.Close, v.Close, db.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
		host.Close()
	})
	return m
}

// images has each one that is asked for.
type images struct{}

func (images) Acquire(_ context.Context, name string) (image.Image, func(), error) {
	return image.Image{Name: name, Path: "/images/" + name, Digest: "sha256:" + name}, func() {}, nil
}

func (images) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// outside takes what the real one takes, and leads nowhere.
type outside struct{ manager.Egress }

func (outside) Check(n sandbox.Network) error {
	_, err := policy.Compile(policy.Spec{Mode: n.Mode, Allow: n.Allow})
	return err
}
func (outside) Default() sandbox.Network            { return sandbox.Network{Allow: []string{"default"}} }
func (outside) Open(*sandbox.Sandbox) client.Tunnel { return nil }
func (outside) Shut(string)                         {}
func (outside) Transferred(string) (out, in int64)  { return 0, 0 }
func (outside) Trust(*sandbox.Sandbox) [][]byte     { return nil }

// protocols are the ways to speak to the door.
var protocols = map[string][]connecthttp.Option{
	"gRPC": {connecthttp.WithGRPC()}, "gRPC-Web": {connecthttp.WithGRPCWeb()}, "Connect": nil, "Connect with JSON": {connecthttp.WithProtoJSON()},
	"gRPC-Web text": {connecthttp.WithGRPCWeb()},
}

// rpcs is a client with a key. Only gRPC needs HTTP/2. "gzip" is Connect with packed
// messages.
func (w *world) rpcs(key, protocol string) *connect.Client {
	w.t.Helper()
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(protocol == "gRPC")
	t.Protocols.SetHTTP1(protocol != "gRPC")
	w.t.Cleanup(t.CloseIdleConnections)
	opts := append([]connecthttp.Option{connecthttp.WithReadMaxBytes(0)}, protocols[protocol]...)
	if protocol == "gzip" {
		opts = append(opts, connecthttp.WithSendGzip())
	}
	if protocol == "gRPC-Web text" {
		return connect.NewClient(connecthttp.NewTransport(texted{keyed{t, key}}, w.url, opts...))
	}
	return connect.NewClient(connecthttp.NewTransport(keyed{t, key}, w.url, opts...))
}

// by is a client of a protocol, client one of gRPC.
func (w *world) by(protocol, key string) sandboxv1connect.SandboxServiceClient {
	w.t.Helper()
	return sandboxv1connect.NewSandboxServiceClient(w.rpcs(key, protocol))
}

func (w *world) client(key string) sandboxv1connect.SandboxServiceClient {
	w.t.Helper()
	return w.by("gRPC", key)
}

type keyed struct {
	*http.Transport
	key string
}

func (k keyed) Do(r *http.Request) (*http.Response, error) {
	if k.key != "" {
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	return k.RoundTrip(r)
}

// session makes one and returns its id.
func (w *world) session(c sandboxv1connect.SandboxServiceClient) *sandboxv1.SessionInfo {
	w.t.Helper()
	a, err := c.CreateSession(w.t.Context(), &sandboxv1.CreateSessionRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.GetSession()
}

func (w *world) exec(c sandboxv1connect.SandboxServiceClient, id, line string) *sandboxv1.ExecResponse {
	w.t.Helper()
	a, err := c.Exec(w.t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: line})
	if err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
	return a
}
