package manager

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// transition is the one place where the status of a sandbox changes: it refuses
// what the state machine does not have, and records the change before anybody
// acts on it. The caller holds b.op. change, if not nil, sets what else changes
// in the record.
func (m *Manager) transition(ctx context.Context, b *box, to sandbox.State, why doom, change func(*sandbox.Sandbox)) error {
	rec := b.snapshot()
	from := rec.Status
	if !from.MayBecome(to) {
		return fmt.Errorf("sandbox %s can't go from %s to %s: %w", rec.Short, from, to, errdefs.ErrFailedPrecondition)
	}
	rec.Status, rec.Reason, rec.ReasonText = to, why.reason, why.text
	ended := to == sandbox.Stopped || to == sandbox.Failed
	if ended {
		rec.Stopped = wall()
		// Before it is seen to have ended: by the time of an end before, or of none, the
		// sweep would take it at once.
		b.mu.Lock()
		b.stopped = now()
		b.mu.Unlock()
	}
	if change != nil {
		change(&rec)
	}
	err := m.save(ctx, b, rec, m.event(rec, sandbox.EventState))
	if err == nil && ended {
		m.nudge()
	}
	return err
}

// save records what a sandbox is from now on. Who asked may have gone: what was
// begun is recorded. The caller holds b.op.
func (m *Manager) save(ctx context.Context, b *box, rec sandbox.Sandbox, ev *sandbox.Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := m.opts.Store.Save(ctx, rec, ev); err != nil {
		return err
	}
	b.mu.Lock()
	b.rec = rec
	b.mu.Unlock()
	b.tell()
	return nil
}

// event is what happened to a sandbox, as its record tells.
func (m *Manager) event(rec sandbox.Sandbox, t sandbox.EventType) *sandbox.Event {
	return &sandbox.Event{UID: rec.UID, Owner: rec.Owner, Time: wall(), Type: t, Status: rec.Status, Reason: rec.Reason, Detail: rec.ReasonText}
}

// tell wakes those who follow the events.
func (b *box) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.events)
	b.events = make(chan struct{})
}
