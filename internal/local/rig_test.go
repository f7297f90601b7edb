package local_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentbox/internal/image"
	"agentbox/internal/local"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a data directory, the fake hosts below it, and images. It notes what
// is done with them, and lets steps fail.
type rig struct {
	t    *testing.T
	data string

	mu    sync.Mutex
	hosts map[string]*fake.Host // by the owner's directory
	done  []string              // "acquire", "create", "start", "attach", "destroy", "release"
	fail  map[string]error      // by step
	// attached runs when a stream was opened and before it is used.
	attached func(h *fake.Host, id string, c net.Conn) net.Conn
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, data: t.TempDir(), hosts: map[string]*fake.Host{}, fail: map[string]error{}}
	t.Cleanup(func() {
		for _, h := range r.hosts {
			h.Close()
		}
	})
	return r
}

// host is the machine of the owner's directory dir.
func (r *rig) host(dir string) *fake.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[dir] == nil {
		r.hosts[dir] = fake.NewHost(fake.Options{NotEnforced: []string{sandbox.LimitCPUs}})
	}
	return r.hosts[dir]
}

func (r *rig) backend(_, dir string) (runtime.Runtime, error) {
	h := r.host(dir)
	return &recorder{Runtime: h.Open(), rig: r, host: h}, r.step("open")
}

// open starts an engine, which is closed at the end of the test.
func (r *rig) open() (*local.Engine, *fake.Host) {
	r.t.Helper()
	e, h := r.start()
	r.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return e, h
}

// start starts an engine, which the test closes.
func (r *rig) start() (*local.Engine, *fake.Host) {
	r.t.Helper()
	e, err := local.Open(r.t.Context(), r.data, r, r.backend, func(err error) { r.t.Error(err) })
	if err != nil {
		r.t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(r.data, "owners", "[^.]*"))
	if err != nil || len(dirs) != 1 {
		r.t.Fatalf("the owners' directories are %v, %v", dirs, err)
	}
	return e, r.host(dirs[0])
}

// step notes a step and tells whether it should fail.
func (r *rig) step(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, name)
	return r.fail[name]
}

func (r *rig) failing(step string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[step] = err
}

// wantSteps checks and forgets what was done.
func (r *rig) wantSteps(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.done, want) {
		r.t.Errorf("the steps were %q, not %q", r.done, want)
	}
	r.done = nil
}

func (r *rig) forgetSteps() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = nil
}

// Acquire implements local.Images.
func (r *rig) Acquire(_ context.Context, name string) (image.Image, func(), error) {
	if err := r.step("acquire"); err != nil {
		return image.Image{}, nil, err
	}
	img := image.Image{Path: "/images/" + name, Digest: name}
	img.Config.Env = []string{"FROM=image", "KEPT=yes"}
	return img, func() { _ = r.step("release") }, nil
}

// recorder is a fake back end whose steps are noted.
type recorder struct {
	runtime.Runtime
	rig  *rig
	host *fake.Host
}

func (r *recorder) Create(ctx context.Context, s runtime.Spec) error {
	return errors.Join(r.rig.step("create"), r.Runtime.Create(ctx, s))
}

func (r *recorder) Start(ctx context.Context, id string) error {
	if err := r.rig.step("start"); err != nil {
		return err
	}
	return r.Runtime.Start(ctx, id)
}

func (r *recorder) Attach(ctx context.Context, id string) (net.Conn, error) {
	if err := r.rig.step("attach"); err != nil {
		return nil, err
	}
	c, err := r.Runtime.Attach(ctx, id)
	if err == nil && r.rig.attached != nil {
		c = r.rig.attached(r.host, id, c)
	}
	return c, err
}

func (r *recorder) Destroy(ctx context.Context, id string) error {
	if err := errors.Join(r.rig.step("destroy"), ctx.Err()); err != nil {
		return err
	}
	return r.Runtime.Destroy(ctx, id)
}

// left is what the host still has.
func left(t *testing.T, h *fake.Host) []runtime.Info {
	t.Helper()
	r := h.Open()
	defer r.Close()
	all, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func request() local.Request {
	return local.Request{Image: "small", Limits: sandbox.Limits{}.WithDefaults()}
}
