package manager

import (
	"cmp"
	"context"
	"time"

	"agentbox/internal/sandbox"
)

const (
	// flushEvery is how far behind the store may be with activity.
	flushEvery = 10 * time.Second
	// expireEvery is how often what is kept for a day is looked through.
	expireEvery = 10 * time.Minute
)

// nudge makes the sweeper look at the deadlines again.
func (m *Manager) nudge() {
	select {
	case m.wake <- struct{}{}:
	default: // it is about to
	}
}

// sweepForever ends what is idle or too old, and writes down activity.
func (m *Manager) sweepForever() {
	var flushed, expired time.Time
	for {
		t := now()
		wait := min(m.sweep(t), flushEvery)
		if t.Sub(flushed) >= flushEvery {
			flushed = t
			m.report("record activity", m.flush(m.ctx))
		}
		if t.Sub(expired) >= expireEvery {
			expired = t
			m.report("remove what is over", m.opts.Store.Expire(m.ctx, t))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-m.wake:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (m *Manager) report(what string, err error) {
	if err != nil && m.ctx.Err() == nil {
		m.log.Error(what, "error", err)
	}
}

// sweep begins to end the sandboxes whose time is over and returns how long it
// is until the next deadline.
func (m *Manager) sweep(t time.Time) time.Duration {
	wait := flushEvery
	for _, b := range m.index.all() {
		act, left := b.due(t)
		wait = min(wait, left)
		if act != nil {
			m.spawn(func() { m.report("end a sandbox", act(m, b)) })
		}
	}
	return max(wait, time.Millisecond)
}

// due decides what is to be done with a sandbox now, nothing for nil, and when
// to look again. Nothing can begin to use one that it decided to end.
func (b *box) due(t time.Time) (act func(*Manager, *box) error, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left = flushEvery
	over := func(deadline time.Time) bool {
		if deadline.IsZero() {
			return false
		}
		d := deadline.Sub(t)
		if d > 0 {
			left = min(left, d)
		}
		return d <= 0
	}
	switch {
	case b.doom.reason != "":
		if over(b.retry) {
			b.retry = t.Add(endTimeout) // unless it sets one itself
			return endMarked, left
		}
	case over(b.expires):
		return b.condemn(sandbox.ReasonLifetime), left
	case b.rec.Status == sandbox.Stopped && b.rec.KeepStopped > 0 && !b.ending && over(b.stopped.Add(b.rec.KeepStopped)):
		return b.condemn(sandbox.ReasonIdle), left
	case b.rec.Status == sandbox.Failed && b.rec.KeepStopped > 0 && !b.rec.Stopped.IsZero() && over(b.stopped.Add(b.rec.KeepStopped)):
		return b.condemn(cmp.Or(b.rec.Reason, sandbox.ReasonFailure)), left
	case b.rec.Status == sandbox.Live && !b.ending && b.active == 0 && b.rec.IdleTimeout != sandbox.Never && over(b.used.Add(b.rec.IdleTimeout)):
		if b.rec.OnIdle == sandbox.IdleStop {
			b.ending = true
			return stopIdle, left
		}
		return b.condemn(sandbox.ReasonIdle), left
	}
	return nil, left
}

// condemn marks a sandbox and returns what ends it; mu is held.
func (b *box) condemn(r sandbox.Reason) func(*Manager, *box) error {
	b.doom, b.ending = doom{reason: r}, true
	if b.cancel != nil {
		b.cancel()
	}
	return endMarked
}

func endMarked(m *Manager, b *box) error { return m.destroyNow(m.ctx, b, b.why()) }

func stopIdle(m *Manager, b *box) error {
	err := m.changeNow(m.ctx, b, func(ctx context.Context, b *box) error {
		if b.status() != sandbox.Live {
			return nil // somebody stopped it meanwhile
		}
		return m.stopNow(ctx, b, doom{reason: sandbox.ReasonIdle})
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ending = b.doom.reason != ""
	if err != nil {
		b.touch() // tried again when it was idle for as long once more
	}
	return err
}

// flush records when sandboxes were last used.
func (m *Manager) flush(ctx context.Context) error {
	used := map[string]time.Time{}
	for _, b := range m.index.all() {
		b.mu.Lock()
		if b.unsaid {
			used[b.rec.UID] = b.used
			b.unsaid = false
		}
		b.mu.Unlock()
	}
	if len(used) == 0 {
		return nil
	}
	err := m.opts.Store.Touch(ctx, used)
	if err != nil {
		for uid := range used {
			if b := m.index.byUID(uid); b != nil {
				b.mu.Lock()
				b.unsaid = true
				b.mu.Unlock()
			}
		}
	}
	return err
}
