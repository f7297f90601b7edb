package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/failpoint"
	"agentbox/internal/sandbox"
)

// Destroy ends a sandbox, whatever it does, and removes everything of it. It
// returns when that is done, also when somebody else began it. It goes on when
// ctx ends first.
func (m *Manager) Destroy(ctx context.Context, c sandbox.Caller, id string) error {
	b, err := m.find(ctx, c, id)
	if err == nil {
		err = m.destroy(ctx, b, "")
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox: %w", err)
	}
	return nil
}

func (m *Manager) destroy(ctx context.Context, b *box, text string) error {
	d := doom{sandbox.ReasonDestroyed, text}
	b.mark(d)
	return m.detached(ctx, func(ctx context.Context) error { return m.destroyNow(ctx, b, d) })
}

func (m *Manager) destroyNow(ctx context.Context, b *box, d doom) error {
	b.mark(d)
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := b.lock(ctx); err != nil {
		b.again()
		return err
	}
	defer b.unlock()
	if b.isGone() {
		return nil
	}
	return m.end(ctx, b)
}

const (
	// endTimeout bounds one attempt to remove a sandbox.
	endTimeout = 2 * time.Minute
	// endRetry is when a removal that failed is tried again.
	endRetry = 10 * time.Second
)

// again lets the sweeper try the removal once more.
func (b *box) again() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retry = now().Add(endRetry)
}

// end removes a sandbox that is to go, for the reason that is marked. It works
// from any state and may be repeated. The caller holds b.op.
func (m *Manager) end(ctx context.Context, b *box) (err error) {
	defer func() {
		if err != nil {
			b.again()
			m.nudge()
		}
	}()
	why := b.why()
	if b.status() != sandbox.Destroying {
		err := m.transition(ctx, b, sandbox.Destroying, why, b.noteDrop)
		// A full disk must not keep from what makes room on it. Should the daemon
		// die in the middle, the next one finds no such sandbox and buries it.
		if err != nil && !errdefs.IsResourceExhausted(err) {
			return err
		}
	}
	if err := failpoint.DestroyRecorded.Hit(); err != nil {
		return err
	}
	if l := m.halt(b); l != nil {
		l.End(why.reason, why.text)
	}
	if err := m.opts.Runtime.Destroy(ctx, b.uid()); err != nil {
		return fmt.Errorf("remove the sandbox: %w", err)
	}
	if err := failpoint.DestroyRemoved.Hit(); err != nil {
		return err
	}
	b.releaseImage()
	if err := m.releaseStorage(ctx, b); err != nil {
		return fmt.Errorf("release what the sandbox used: %w", err)
	}
	if err := failpoint.DestroyReleased.Hit(); err != nil {
		return err
	}
	if err := m.bury(ctx, b, why); err != nil {
		return err
	}
	m.index.remove(b)
	m.opts.Meter.Ended(why.reason)
	b.tell()
	close(b.gone)
	return failpoint.DestroyBuried.Hit()
}

// bury leaves a tombstone, or no trace of what never was.
func (m *Manager) bury(ctx context.Context, b *box, why doom) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	sb := b.snapshot()
	if why.reason == sandbox.ReasonUnmade {
		return m.opts.Store.Forget(ctx, sb.UID)
	}
	tomb := sandbox.Tombstone{
		UID: sb.UID, Short: sb.Short, Label: sb.Label, Name: sb.Name, Aliases: sb.Aliases, Owner: sb.Owner,
		Reason: why.reason, ReasonText: why.text, Created: sb.Created, Destroyed: wall(),
	}
	sb.Status, sb.Reason, sb.ReasonText = sandbox.Destroyed, why.reason, why.text
	err := m.opts.Store.Bury(ctx, tomb, m.event(sb, sandbox.EventState))
	if errdefs.IsResourceExhausted(err) {
		// Better no tombstone than a sandbox that can't go.
		err = m.opts.Store.Forget(ctx, sb.UID)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.tomb = tomb
	b.mu.Unlock()
	return nil
}
