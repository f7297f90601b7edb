package manager_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"agentbox/internal/image"
	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
	"agentbox/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var acme = sandbox.Caller{Owner: "acme"}

// rig is a machine with a database, on which daemons come and go.
type rig struct {
	t      *testing.T
	host   *fake.Host
	path   string
	policy manager.Policy
	memory func() (int64, int64, error)
	// volumes opens the daemon's; nil: there are none. disk is what it opened last.
	volumes func(*store.Store) manager.Volumes
	disk    disk
	storage string // directory of tenants' storage
	// egress is the daemon's; nil: none. wrap is around its back end.
	egress  manager.Egress
	wrap    func(runtime.Runtime) runtime.Runtime
	secrets manager.Secrets
}

// disk is what tests ask of *volume.Volumes, which only some systems have.
type disk interface {
	Create(ctx context.Context, owner, name string, size int64) (sandbox.Volume, error)
	Holders(ctx context.Context, owner, name string) ([]string, error)
	List(ctx context.Context, owner string) ([]sandbox.Volume, error)
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, host: fake.NewHost(fake.Options{NotEnforced: []string{sandbox.LimitCPUs}}), path: filepath.Join(t.TempDir(), "db")}
	r.policy.Max = sandbox.MaxLimits(64*sandbox.GiB, 4)
	t.Cleanup(r.host.Close)
	return r
}

// daemon is a manager with what it has open.
type daemon struct {
	*manager.Manager
	t     *testing.T
	life  *life
	store *store.Store
	rt    runtime.Runtime
	once  sync.Once
}

// open starts a daemon, which ends with the test at the latest.
func (r *rig) open(before ...func(*life)) *daemon {
	r.t.Helper()
	d, err := r.tryOpen(before...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { d.close() })
	return d
}

func (r *rig) tryOpen(before ...func(*life)) (*daemon, error) {
	r.t.Helper()
	s, err := store.Open(r.t.Context(), r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	l := &life{fail: map[string]error{}, hooks: map[string]func(){}}
	for _, f := range before {
		f(l)
	}
	d := &daemon{t: r.t, life: l, store: s, rt: r.host.Open()}
	o := manager.Options{Runtime: &mortalRuntime{d.rt, l}, Images: l, Store: &mortalStore{s, l}, Policy: r.policy, Memory: r.memory}
	o.Egress = r.egress
	if r.wrap != nil {
		o.Runtime = r.wrap(o.Runtime)
	}
	if r.secrets != nil {
		o.Secrets = r.secrets
	}
	if r.volumes != nil {
		o.Volumes = &mortalVolumes{r.volumes(s), l}
	}
	d.Manager, err = manager.Open(r.t.Context(), o)
	if err != nil {
		return nil, errors.Join(err, d.rt.Close(), s.Close())
	}
	return d, nil
}

// close ends the daemon in an orderly way.
func (d *daemon) close() {
	d.once.Do(func() {
		err := d.Close()
		if !d.life.isDead() && err != nil {
			d.t.Error(err)
		}
		if err := errors.Join(d.rt.Close(), d.store.Close()); err != nil {
			d.t.Error(err)
		}
	})
}

// kill ends the daemon as SIGKILL does: from now on nothing that it does has an
// effect.
func (d *daemon) kill() {
	d.life.die()
	d.close()
}

// life lets steps of a daemon fail, and all of them when it is dead.
type life struct {
	mu    sync.Mutex
	dead  bool
	left  int // steps until it dies, if it is not 0
	fail  map[string]error
	hooks map[string]func()
	held  int // images
	ooms  int64
	muted bool // nothing that agents say arrives
}

var errDead = errors.New("the daemon is dead")

func (l *life) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// dieIn kills the daemon after some steps.
func (l *life) dieIn(steps int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = steps
}

func (l *life) failing(step string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail[step] = err
}

func (l *life) hook(step string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks[step] = f
}

func (l *life) step(name string) error {
	l.mu.Lock()
	hook := l.hooks[name]
	l.mu.Unlock()
	if hook != nil {
		hook()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
		l.dead = l.dead || l.left == 0
	}
	if l.dead {
		return errDead
	}
	return l.fail[name]
}

// around is a step before and one after f: the daemon may die between what it
// did and hearing of it.
func (l *life) around(name string, f func() error) error {
	if err := l.step(name); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, l.step(name+" done"))
}

func (l *life) Acquire(_ context.Context, name string) (image.Image, func(), error) {
	if err := l.step("acquire"); err != nil {
		return image.Image{}, nil, err
	}
	if name == "missing" {
		return image.Image{}, nil, errdefs.ErrNotFound
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held++
	img := image.Image{Path: "/images/" + name, Digest: "sha256:" + name}
	img.Config.Env = []string{"FROM=image"}
	return img, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held--
	}), nil
}

func (l *life) Hold(_ context.Context, path string) (func(), error) {
	if path != "/images/default" {
		return nil, errdefs.ErrNotFound
	}
	_, release, err := l.Acquire(context.Background(), "default")
	return release, err
}

// inHost are the sandboxes that the machine has, by id.
func (r *rig) inHost() map[string]sandbox.State {
	r.t.Helper()
	rt := r.host.Open()
	defer rt.Close()
	all, err := rt.List(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	m := map[string]sandbox.State{}
	for _, i := range all {
		m[i.ID] = i.State
	}
	return m
}

func (d *daemon) create(r sandbox.CreateRequest) sandbox.Sandbox {
	d.t.Helper()
	sb, err := d.Create(d.t.Context(), acme, r, "")
	if err != nil {
		d.t.Fatal(err)
	}
	return sb
}

func (d *daemon) get(id string) sandbox.Sandbox {
	d.t.Helper()
	sb, err := d.Get(d.t.Context(), acme, id)
	if err != nil {
		d.t.Fatal(err)
	}
	return sb
}

func (d *daemon) sh(id, text string) *sandbox.Result {
	d.t.Helper()
	res, err := d.Exec(d.t.Context(), acme, id, sandbox.Command{Shell: text}, nil, "")
	if err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
	return res
}

// wantGone checks why a sandbox is gone.
func (d *daemon) wantGone(id string, why sandbox.Reason) {
	d.t.Helper()
	_, err := d.Get(d.t.Context(), acme, id)
	var gone *sandbox.GoneError
	if !errors.As(err, &gone) || gone.Tombstone.Reason != why || !errdefs.IsNotFound(err) {
		d.t.Errorf("got %v, want it to be gone: %s", err, why)
	}
}

// until waits for something that happens soon.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
