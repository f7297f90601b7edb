package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"agentbox/internal/image"
	"agentbox/internal/live"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Images gives an image for as long as a sandbox uses it.
type Images interface {
	Acquire(ctx context.Context, name string) (img image.Image, release func(), err error)
	// Hold goes on with what another process acquired, by the image's Path.
	Hold(ctx context.Context, path string) (release func(), err error)
}

// Store keeps what must outlive the process. What a call has recorded is there
// after a kill; a call that fails has recorded nothing.
type Store interface {
	// Sandboxes returns all of them, of all owners.
	Sandboxes(ctx context.Context) ([]sandbox.Sandbox, error)
	// Admit records a new sandbox if there is room for it and its ids are free,
	// or returns the uid that the same request was answered with before.
	Admit(ctx context.Context, a sandbox.Admission, ev *sandbox.Event) (before string, err error)
	// Save records what a sandbox is now, with the event that ev is, if any.
	Save(ctx context.Context, sb sandbox.Sandbox, ev *sandbox.Event) error
	// Touch records when sandboxes were last used.
	Touch(ctx context.Context, used map[string]time.Time) error
	// Bury replaces a sandbox by its tombstone; Forget removes all trace of it.
	Bury(ctx context.Context, dead sandbox.Tombstone, ev *sandbox.Event) error
	Forget(ctx context.Context, uid string) error
	// Tombstone finds one by any id of an owner's sandbox.
	Tombstone(ctx context.Context, owner, id string) (sandbox.Tombstone, error)
	// Remember records a repeatable request, or returns what is known of it;
	// Recall only does the latter. Answer records what came of it, Unlearn that
	// nothing did.
	Remember(ctx context.Context, r sandbox.Repeatable) (before *sandbox.Repeatable, err error)
	Recall(ctx context.Context, r sandbox.Repeatable) (*sandbox.Repeatable, error)
	Answer(ctx context.Context, r sandbox.Repeatable) error
	Unlearn(ctx context.Context, r sandbox.Repeatable) error
	AddEvent(ctx context.Context, ev *sandbox.Event) error
	// Events are those of a sandbox after a number, oldest first.
	Events(ctx context.Context, uid string, after int64, limit int) ([]sandbox.Event, error)
	// Expire removes what is kept for a time only.
	Expire(ctx context.Context, now time.Time) error
}

// Meter counts what happens; telemetry.Core is one.
type Meter interface {
	Created(err error, took time.Duration)
	Executed(r *sandbox.Result, err error)
	Ended(why sandbox.Reason)
}

type noMeter struct{}

func (noMeter) Created(error, time.Duration)    {}
func (noMeter) Executed(*sandbox.Result, error) {}
func (noMeter) Ended(sandbox.Reason)            {}

// Options of a [Manager].
type Options struct {
	Runtime runtime.Runtime
	Images  Images
	Store   Store
	// Volumes are storage that outlives sandboxes. Nil: there are none.
	Volumes Volumes
	Policy  Policy
	// Egress is the way to the network. Nil: there is none.
	Egress Egress
	// Secrets may be given to sandboxes. Nil: there are none.
	Secrets Secrets
	// Memory tells how much memory the host can still give and how much it has,
	// in bytes. Nil: nobody is refused for it.
	Memory func() (available, total int64, err error)
	// Meter counts. Nil: nobody does.
	Meter Meter
	// Log is for the operator. Nil: none.
	Log *slog.Logger
}

// Manager has the sandboxes of one daemon.
type Manager struct {
	opts    Options
	policy  Policy
	host    *live.Host
	log     *slog.Logger
	index   index
	creates chan struct{} // one element for each creation or start under way
	admit   sync.Mutex    // a sandbox is recorded and findable at once
	wake    chan struct{} // the sweeper has a new deadline to look at

	draining atomic.Bool
	ctx      context.Context //nolint:containedctx // it is the manager's life
	stop     context.CancelFunc

	flying  sync.Mutex
	flights map[ownedID]*flight // repeatable requests under way, by their keys

	life   sync.Mutex // closed, and beginning a task
	closed bool
	tasks  sync.WaitGroup
}

// Open starts a manager and brings its store and its back end to agreement: when
// it returns, every sandbox that lived on is there; those that are slow to answer
// are waited for by who uses them.
func Open(ctx context.Context, o Options) (*Manager, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Meter = cmp.Or[Meter](o.Meter, noMeter{})
	o.Egress = cmp.Or[Egress](o.Egress, noEgress{})
	m := &Manager{opts: o, policy: o.Policy.withDefaults(), log: o.Log, wake: make(chan struct{}, 1), flights: map[ownedID]*flight{}}
	m.creates = make(chan struct{}, cmp.Or(o.Policy.Creates, goruntime.NumCPU()))
	m.index.init()
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.host = live.NewHost(o.Runtime)
	if err := m.reconcile(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over the sandboxes: %w", err), m.Close())
	}
	m.spawn(m.sweepForever)
	return m, nil
}

// Capabilities of the back end.
func (m *Manager) Capabilities() runtime.Capabilities { return m.opts.Runtime.Capabilities() }

// Counts tells how many sandboxes of all owners are in each state.
func (m *Manager) Counts() map[sandbox.State]int {
	n := map[sandbox.State]int{}
	for _, b := range m.index.all() {
		n[b.status()]++
	}
	return n
}

// Drain refuses new sandboxes from now on. What there is goes on.
func (m *Manager) Drain() { m.draining.Store(true) }

// Close lets go of the sandboxes: they and their commands go on, and the next
// manager takes them over. Calls that are under way are cut short.
func (m *Manager) Close() error {
	m.Drain()
	m.life.Lock()
	m.closed = true
	m.life.Unlock()
	m.stop()
	m.tasks.Wait()
	for _, b := range m.index.all() {
		if l := m.halt(b); l != nil {
			l.LetGo()
		}
	}
	m.host.Close()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := m.flush(ctx)
	for _, b := range m.index.all() {
		b.releaseImage()
	}
	return err
}

// DestroyAll ends all sandboxes of all owners, for a daemon that leaves nothing
// behind.
func (m *Manager) DestroyAll(ctx context.Context) error {
	m.Drain()
	all := m.index.all()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() { errs[i] = m.destroy(ctx, b, "the server ended") })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// storeTimeout bounds what is recorded when nobody waits for it any more.
const storeTimeout = 30 * time.Second

// spawn runs f as a task that Close waits for. It reports false, and does not
// run f, when the manager is closed.
func (m *Manager) spawn(f func()) bool {
	ended, ok := m.task()
	if ok {
		go func() {
			defer ended()
			f()
		}()
	}
	return ok
}

// task begins what Close waits for, until it ended; not ok when the manager is closed.
func (m *Manager) task() (ended func(), ok bool) {
	m.life.Lock()
	defer m.life.Unlock()
	if m.closed {
		return nil, false
	}
	m.tasks.Add(1)
	return m.tasks.Done, true
}

// detached runs f to its end whether or not who asked for it stays to see the
// result.
func (m *Manager) detached(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	if !m.spawn(func() { done <- f(m.ctx) }) {
		return errDraining
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// now is the time by the wall clock with the monotonic clock's reading:
// differences of two are right even if somebody sets the wall clock.
func now() time.Time { return time.Now() }

// wall is the time that is recorded and shown. It has no reading of the monotonic
// clock: [time.Time.UTC] drops it.
func wall() time.Time { return time.Now().UTC() }
