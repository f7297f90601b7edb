package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// adoptions is how many sandboxes are taken over at the same time: each is mostly
// waiting.
const adoptions = 8

// reconcile brings the store and the back end to agreement: what runs is taken
// over, what is half-made or half-gone is removed, what ended meanwhile gets its
// tombstone, and then what only the back end knows is recorded again. An error of one
// sandbox does not keep the others from it.
func (m *Manager) reconcile(ctx context.Context) error {
	recs, err := m.opts.Store.Sandboxes(ctx)
	if err != nil {
		return err
	}
	infos, err := m.opts.Runtime.List(ctx)
	if err != nil {
		return err
	}
	found := map[string]runtime.Info{}
	for _, i := range infos {
		found[i.ID] = i
	}
	var g errgroup.Group
	g.SetLimit(adoptions)
	for _, rec := range recs {
		info := found[rec.UID]
		delete(found, rec.UID)
		if damaged(&rec) {
			rec = m.mended(rec, info)
		}
		b := newBox(rec)
		b.arm()
		m.index.add(b)
		g.Go(func() error {
			m.takeUp(ctx, b, info)
			return ctx.Err()
		})
	}
	// Of a store that is older than the back end, those that are gone may have the
	// names and volumes of those that it does not know.
	if err := g.Wait(); err != nil {
		return err
	}
	for _, info := range found {
		g.Go(func() error {
			if err := m.unrecorded(ctx, info); err != nil {
				m.log.Error("take up or remove a sandbox that is not recorded", "sandbox", info.ID, "error", err)
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// guestPatience is how long the daemon waits for one sandbox that runs before it
// begins without it. Agents answer within milliseconds; one that does not, because
// its sandbox is frozen or starved, delays nobody else. With 20 such sandboxes, eight
// at a time, the daemon is still ready within five seconds.
const guestPatience = time.Second

// takeUp does what recover does, as a task. It returns when that is done or, if the
// sandbox runs, when it takes too long: then it goes on, and whoever uses the sandbox
// waits for it. Till then the sandbox is not idle: commands may run in it.
func (m *Manager) takeUp(ctx context.Context, b *box, info runtime.Info) {
	rec := b.snapshot()
	var late <-chan time.Time
	if info.State == sandbox.Live && rec.Status != sandbox.Creating && rec.Status != sandbox.Destroying {
		late = time.After(guestPatience)
	}
	b.pin(1)
	done := make(chan struct{})
	m.spawn(func() {
		defer close(done)
		defer func() { b.pin(-1); m.nudge() }()
		if err := m.recover(m.ctx, b, info); err != nil {
			m.log.Error("take over a sandbox", "sandbox", rec.Short, "status", rec.Status, "error", err)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
	case <-late:
		m.log.Warn("a sandbox is slow to answer; the server begins without it", "sandbox", rec.Short)
	}
}

// recover goes on with one sandbox from where the last manager was.
func (m *Manager) recover(ctx context.Context, b *box, info runtime.Info) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	rec := b.snapshot()
	switch rec.Status {
	case sandbox.Creating:
		return m.finish(ctx, b, doom{sandbox.ReasonUnmade, "the server ended while it was made"})
	case sandbox.Destroying:
		return m.finish(ctx, b, doom{cmp.Or(rec.Reason, sandbox.ReasonDestroyed), rec.ReasonText}) // a damaged record has none
	case sandbox.Failed:
		return m.freeFailed(ctx, b, info)
	}
	m.hold(ctx, b)
	m.holdStorage(ctx, b)
	switch rec.Status {
	case sandbox.Stopping:
		return m.resumeStop(ctx, b, info)
	case sandbox.Starting:
		return m.resumeStart(ctx, b, info)
	}
	switch {
	case rec.Status == sandbox.Stopped && info.State == sandbox.Stopped:
		return m.hadLimits(ctx, b, info)
	case rec.Status == sandbox.Live && info.State == sandbox.Live:
		return errors.Join(m.hadLimits(ctx, b, info), m.takeOver(ctx, b))
	}
	return m.loseNow(ctx, b, lost(info))
}

// hold keeps the image of a sandbox that was there before. Without it a sandbox
// that runs goes on; one that is stopped may not start again.
func (m *Manager) hold(ctx context.Context, b *box) {
	sb := b.snapshot()
	release, err := m.opts.Images.Hold(ctx, sb.ImagePath)
	if err != nil {
		m.log.Warn("hold the image of a sandbox", "sandbox", sb.Short, "error", err)
		return
	}
	b.mu.Lock()
	b.release = release
	b.mu.Unlock()
}

// adoptTimeout bounds taking over one sandbox, whose agent needs milliseconds:
// whoever wants to use it waits meanwhile.
const adoptTimeout = 10 * time.Second

// dyingGrace is how long a process that was killed may take until it is gone: as
// long as it is not, it only looks as if it could not be reached.
const dyingGrace = time.Second

// lost is why a sandbox that should be there is not, as far as the back end can
// tell.
func lost(info runtime.Info) doom {
	switch {
	case info.ID == "":
		return doom{reason: sandbox.ReasonHostRestart}
	case info.State == sandbox.Failed && info.Reason != sandbox.ReasonNone:
		return doom{reason: info.Reason}
	}
	return doom{sandbox.ReasonCrashed, "the back end says that it is " + string(info.State)}
}

func (m *Manager) finish(ctx context.Context, b *box, why doom) error {
	b.mark(why)
	return m.end(ctx, b)
}

// resumeStop stops what was being stopped.
func (m *Manager) resumeStop(ctx context.Context, b *box, info runtime.Info) error {
	sb := b.snapshot()
	why := doom{sb.Reason, sb.ReasonText}
	if info.State == sandbox.Live {
		if err := m.opts.Runtime.Stop(ctx, sb.UID); err != nil {
			return errors.Join(err, m.settle(ctx, b, err))
		}
		info.State = sandbox.Stopped
	}
	if info.State == sandbox.Stopped {
		return m.transition(ctx, b, sandbox.Stopped, why, nil)
	}
	return m.loseNow(ctx, b, lost(info))
}

// resumeStart lets run what was being started and runs, and leaves the rest
// stopped.
func (m *Manager) resumeStart(ctx context.Context, b *box, info runtime.Info) error {
	switch info.State {
	case sandbox.Live:
		if err := m.transition(ctx, b, sandbox.Live, doom{}, func(sb *sandbox.Sandbox) { sb.Started = wall() }); err != nil {
			return err
		}
		return m.takeOver(ctx, b)
	case sandbox.Stopped:
		return m.transition(ctx, b, sandbox.Stopped, doom{sandbox.ReasonStopped, "the server ended while it was started"}, nil)
	}
	return m.loseNow(ctx, b, lost(info))
}

// hadLimits finishes a change of limits that was recorded and may not have been
// made.
func (m *Manager) hadLimits(ctx context.Context, b *box, info runtime.Info) error {
	sb := b.snapshot()
	r, ok := runtime.As[runtime.Resizer](m.opts.Runtime)
	if !ok || sb.Limits == info.Limits {
		return nil
	}
	return r.Resize(ctx, sb.UID, sb.Limits)
}

// takeOver adopts a sandbox that another manager ran. If it can't be reached
// while it lives, that is tried again with its next use.
func (m *Manager) takeOver(ctx context.Context, b *box) error {
	rec := b.snapshot()
	nextEpoch(&rec)
	if err := m.save(ctx, b, rec, m.event(rec, sandbox.EventAdopted)); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(b.work(ctx), adoptTimeout)
	defer cancel()
	for end := now().Add(dyingGrace); ; {
		err := m.adopt(soon, b)
		if err == nil {
			return nil
		}
		info, look := m.look(ctx, rec.UID)
		switch {
		case look == nil && info.State != sandbox.Live:
			return m.loseNow(ctx, b, lost(info))
		case look != nil || soon.Err() != nil || now().After(end):
			return errors.Join(err, look)
		}
		time.Sleep(dyingGrace / 20)
	}
}

// adopt connects to a sandbox that runs, with the epoch that its record has, and
// keeps it in use for the commands that run in it. The caller holds b.op.
func (m *Manager) adopt(ctx context.Context, b *box) error {
	sb := b.snapshot()
	l, err := m.host.Adopt(ctx, sb.UID, m.config(&sb, m.wayOut(&sb)), sb.Epoch)
	if err != nil {
		m.opts.Egress.Shut(sb.UID)
		return err
	}
	execs, err := l.Session().Execs(ctx)
	if err != nil {
		l.LetGo()
		m.opts.Egress.Shut(sb.UID)
		return fmt.Errorf("list the commands that run: %w", err)
	}
	m.runs(ctx, b, l, m.listenAgain(ctx, b))
	for _, e := range execs {
		if e.Result.Outcome == sandbox.Running && b.begin() == nil {
			lease := &Lease{m: m, b: b, live: l}
			if !m.spawn(func() { defer lease.Release(); m.outlast(b, e.ID) }) {
				lease.Release()
			}
		}
	}
	return nil
}
