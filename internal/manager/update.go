package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentbox/internal/sandbox"
)

// Update changes labels, timeouts and limits of a sandbox, all or nothing, and
// returns it. It goes on when ctx ends first.
func (m *Manager) Update(ctx context.Context, c sandbox.Caller, id string, u sandbox.Update) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	if err == nil {
		err = m.detached(ctx, func(ctx context.Context) error { return m.update(ctx, b, u) })
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("update sandbox: %w", err)
	}
	return b.snapshot(), nil
}

func (m *Manager) update(ctx context.Context, b *box, u sandbox.Update) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.isGone() {
		return b.goneErr()
	}
	before := b.snapshot()
	if before.Status == sandbox.Destroying {
		return b.stateErr("Sandbox is being destroyed")
	}
	rec := b.snapshot()
	if err := errors.Join(m.apply(&rec, u), m.applyLimits(&rec, u.Limits)); err != nil {
		return err
	}
	ev := m.event(rec, sandbox.EventUpdate)
	ev.Reason, ev.Detail = "", ""
	if rec.Limits == before.Limits {
		if err := m.save(ctx, b, rec, ev); err != nil {
			return err
		}
	} else {
		if err := m.updateLimits(ctx, b, before, rec); err != nil {
			return err
		}
		m.addEvent(ctx, b, ev)
	}
	if u.Lifetime != nil {
		b.arm()
	}
	m.nudge()
	return nil
}

// updateLimits records what a sandbox is to be, with other limits, and lets them
// hold; or it is again what it was before.
func (m *Manager) updateLimits(ctx context.Context, b *box, before, rec sandbox.Sandbox) error {
	if err := m.save(ctx, b, rec, nil); err != nil {
		return err
	}
	if err := m.resize(b.work(ctx), b); err != nil {
		return errors.Join(err, m.save(ctx, b, before, nil))
	}
	return nil
}

func (m *Manager) apply(rec *sandbox.Sandbox, u sandbox.Update) error {
	for k, v := range u.Labels {
		switch {
		case v == nil:
			delete(rec.Labels, k)
		case rec.Labels == nil:
			rec.Labels = map[string]string{k: *v}
		default:
			rec.Labels[k] = *v
		}
	}
	if err := sandbox.CheckLabels(rec.Labels); err != nil {
		return err
	}
	if u.IdleTimeout != nil {
		d, err := changed("idle_timeout", *u.IdleTimeout, sandbox.MinIdleTimeout, m.policy.MaxIdleTimeout)
		if err != nil {
			return err
		}
		rec.IdleTimeout = d
	}
	if u.Lifetime == nil {
		return nil
	}
	// The maximum is that of the sandbox's whole life.
	t, most := wall(), m.policy.MaxLifetime
	if most != 0 {
		most = max(rec.Created.Add(most).Sub(t), sandbox.MinLifetime)
	}
	d, err := changed("lifetime", *u.Lifetime, sandbox.MinLifetime, most)
	if err != nil {
		return err
	}
	rec.Lifetime, rec.Expires = d, time.Time{}
	if d != sandbox.Never {
		rec.Expires = t.Add(d)
	}
	return nil
}

// changed is timeout without a default.
func changed(field string, asked, least, most time.Duration) (time.Duration, error) {
	if asked == 0 {
		return 0, &sandbox.InvalidError{Field: field, Value: "0", Allowed: least.String() + " or more"}
	}
	return timeout(field, asked, 0, least, most)
}
