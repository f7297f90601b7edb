package manager

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"agentbox/internal/live"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// box is one sandbox of the manager.
type box struct {
	// op is held, as a place in it, by whoever changes the record; others wait.
	op chan struct{}

	mu  sync.Mutex
	rec sandbox.Sandbox // as the store has it, but for LastActivity
	// live is the running sandbox; nil while it does not run or could not be
	// reached.
	live     *live.Box
	forwards []*ports.Forward // of its ports on the host, while it runs
	release  func()           // gives the image back
	// cancel cuts short what op's holder does.
	cancel context.CancelFunc
	// dropStorage: the tenant's storage is to go, too; the record says so when
	// the sandbox begins to.
	dropStorage bool
	dropVolumes []string // the same of volumes, by name
	// ending: it was decided that the sandbox goes or stops; no use may begin.
	ending bool
	doom   doom
	// active counts uses under way; used is when the last one began or ended.
	active int
	used   time.Time
	unsaid bool // the store does not know of used
	// expires and retry are deadlines by the monotonic clock; zero: none.
	expires, retry time.Time
	// stopped is when the sandbox was, by the monotonic clock.
	stopped time.Time

	events chan struct{} // closed and replaced with every event
	gone   chan struct{} // closed when nothing is left of it
	tomb   sandbox.Tombstone
}

// doom is why a sandbox is to go. The first reason counts.
type doom struct {
	reason sandbox.Reason
	text   string
}

func newBox(rec sandbox.Sandbox) *box {
	return &box{op: make(chan struct{}, 1), rec: rec, events: make(chan struct{}), gone: make(chan struct{})}
}

// lock makes the caller the one who changes the sandbox.
func (b *box) lock(ctx context.Context) error {
	select {
	case b.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) unlock() {
	b.mu.Lock()
	if b.cancel != nil {
		b.cancel()
		b.cancel = nil
	}
	b.mu.Unlock()
	<-b.op
}

// work is the context of what the holder of op does: it ends when the sandbox is
// to go.
func (b *box) work(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
	if b.doom.reason != "" {
		cancel()
	}
	return ctx
}

// mark decides that the sandbox is to go: no use begins any more, and what is
// being done with it is cut short. It returns the reason, the first one that
// somebody had.
func (b *box) mark(d doom) doom {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doom.reason == "" {
		b.doom = d
	}
	b.ending = true
	if b.cancel != nil {
		b.cancel()
	}
	return b.doom
}

func (b *box) why() doom {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doom
}

// snapshot is the record as callers may have it.
func (b *box) snapshot() sandbox.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	sb := b.rec
	sb.Labels = maps.Clone(sb.Labels)
	sb.Env, sb.Aliases, sb.Ports = slices.Clone(sb.Env), slices.Clone(sb.Aliases), slices.Clone(sb.Ports)
	sb.Volumes, sb.Secrets = slices.Clone(sb.Volumes), slices.Clone(sb.Secrets)
	sb.Require, sb.NotEnforced = slices.Clone(sb.Require), slices.Clone(sb.NotEnforced)
	if !b.used.IsZero() {
		sb.LastActivity = b.used.UTC()
	}
	return sb
}

// uid never changes.
func (b *box) uid() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.UID
}

func (b *box) status() sandbox.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Status
}

func (b *box) running() *live.Box {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

func (b *box) releaseImage() {
	b.mu.Lock()
	release := b.release
	b.release = nil
	b.mu.Unlock()
	if release != nil {
		release()
	}
}

// touch notes activity; mu is held.
func (b *box) touch() { b.used, b.unsaid = now(), true }

// begun notes that the sandbox began to run, which counts as activity.
func (b *box) begun() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touch()
}

// arm sets the deadlines of a record that was read or changed, by the monotonic
// clock. A wall clock that was set back gives nobody more time than they were
// given.
func (b *box) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := now()
	b.expires = time.Time{}
	if !b.rec.Expires.IsZero() {
		b.expires = t.Add(min(b.rec.Expires.Sub(t.Round(0)), b.rec.Lifetime))
	}
	if b.stopped.IsZero() {
		b.stopped = t.Add(-max(t.Round(0).Sub(b.rec.Stopped), 0))
	}
	if b.used.IsZero() {
		b.used = t.Add(-max(t.Round(0).Sub(b.rec.LastActivity), 0))
	}
}

// goneErr is what callers are told when nothing is left of it.
func (b *box) goneErr() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tomb.UID == "" {
		return notFound()
	}
	return &sandbox.GoneError{Tombstone: b.tomb}
}

func (b *box) isGone() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}
