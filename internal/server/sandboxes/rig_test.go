package sandboxes_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/image"
	"agentbox/internal/manager"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/sandboxes"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// world is the door on a running server, whose sandboxes isolate nothing.
type world struct {
	t           testing.TB
	url         string
	admin, user string // keys; user's owner is acme
	host        *fake.Host
	boxes       *manager.Manager
	volumes     *volume.Volumes
	router      *server.Router
	audit       *audit.Log
}

func start(t testing.TB, change ...func(*auth.Policy)) *world {
	t.Helper()
	w := &world{t: t, host: fake.NewHost(fake.Options{})}
	t.Cleanup(w.host.Close)
	keys := auth.NewKeyring(&authtest.Memory{})
	var err error
	if _, w.admin, err = keys.Create(t.Context(), "ops", "", true); err != nil {
		t.Fatal(err)
	}
	if _, w.user, err = keys.Create(t.Context(), "acme", "", false); err != nil {
		t.Fatal(err)
	}
	policy := auth.Policy{}
	for _, f := range change {
		f(&policy)
	}
	gate, err := auth.NewGate(keys, policy)
	if err != nil {
		t.Fatal(err)
	}
	if w.audit, err = audit.Open(t.TempDir(), audit.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.audit.Close() })
	s := server.New(server.Options{Gate: gate, Origins: gate.Origins(), Recorder: w.audit})
	w.router = s.Router()
	w.core()
	hs := httptest.NewServer(s.Handler())
	t.Cleanup(hs.Close)
	w.url = hs.URL
	return w
}

// core opens what is below the door, and adds the door.
func (w *world) core() {
	t := w.t
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	rt := w.host.Open()
	w.volumes, _, err = volume.Open(t.Context(), volume.Options{Dir: filepath.Join(dir, "volumes"), Records: db, Kind: sandbox.VolumeDirectory}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.boxes, err = manager.Open(t.Context(), manager.Options{
		Runtime: rt, Images: images{}, Store: db, Volumes: w.volumes, Policy: manager.Policy{Max: sandbox.MaxLimits(64*sandbox.GiB, 4), MaxPerOwner: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []func() error{w.boxes.Close, rt.Close, w.volumes.Close, db.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	})
	sandboxes.Add(w.router, sandboxes.Parts{
		Sandboxes: w.boxes, Volumes: w.volumes, Settings: db, Audit: w.audit, Image: func() string { return "default" },
		Network: func() sandbox.Network { return sandbox.Network{} }, Exec: sandbox.MaxTimeout,
	})
}

// images has all but one.
type images struct{}

func (images) Acquire(_ context.Context, name string) (image.Image, func(), error) {
	if name == "missing" {
		return image.Image{}, nil, errdefs.ErrNotFound
	}
	return image.Image{Name: name, Path: "/images/" + name, Digest: "sha256:" + name}, func() {}, nil
}

func (images) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// answer is what the server answered.
type answer struct {
	code int
	text string
	head http.Header
}

func (a answer) detail() string {
	var p struct{ Detail string }
	_ = json.Unmarshal([]byte(a.text), &p) // a list leaves it empty
	return p.Detail
}

// send sends a request with a key; a body is JSON.
func (w *world) send(key, method, path, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(text), resp.Header}
}

// create makes a sandbox of the user's.
func (w *world) create(body string) (sb sandboxes.Sandbox) {
	w.t.Helper()
	a := w.send(w.user, "POST", "/api/sandboxes/", body)
	if err := json.Unmarshal([]byte(a.text), &sb); err != nil || a.code != 200 {
		w.t.Fatalf("create %s: %+v", body, a)
	}
	return sb
}

// run runs a command line in a sandbox of the user's and returns what it printed.
func (w *world) run(id, line string) string {
	w.t.Helper()
	body, _ := json.Marshal(map[string]any{"command": line}) // has always JSON
	a := w.send(w.user, "POST", "/api/sandboxes/"+id+"/execute", string(body))
	var res struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
	}
	if err := json.Unmarshal([]byte(a.text), &res); err != nil || a.code != 200 || res.ExitCode != 0 {
		w.t.Fatalf("%s: %+v", line, a)
	}
	return res.Stdout
}

// kept are the names of the user's volumes.
func (w *world) kept() (names []string) {
	w.t.Helper()
	all, err := w.volumes.List(w.t.Context(), "acme")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}
