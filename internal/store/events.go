package store

import (
	"context"
	"fmt"

	"agentbox/internal/sandbox"
)

// event records ev, if it is not nil, and numbers it. The oldest events of a
// sandbox that has many are dropped.
func (t tx) event(ev *sandbox.Event) error {
	if ev == nil {
		return nil
	}
	r, err := t.ExecContext(t.ctx, "INSERT INTO events (uid, owner, time, type, status, reason, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
		ev.UID, ev.Owner, nanos(ev.Time), string(ev.Type), string(ev.Status), string(ev.Reason), ev.Detail)
	if err != nil {
		return err
	}
	if ev.Seq, err = r.LastInsertId(); err != nil {
		return err
	}
	return t.exec(`DELETE FROM events WHERE uid = ?1 AND seq <= (SELECT seq FROM events WHERE uid = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)`,
		ev.UID, sandbox.MaxEvents)
}

// AddEvent records an event by itself.
func (s *Store) AddEvent(ctx context.Context, ev *sandbox.Event) error {
	return s.write(ctx, "record an event", func(t tx) error { return t.event(ev) })
}

// Events returns up to limit events of a sandbox that come after the number
// after, oldest first.
func (s *Store) Events(ctx context.Context, uid string, after int64, limit int) ([]sandbox.Event, error) {
	var all []sandbox.Event
	err := query(ctx, s.r, func(scan func(...any) error) error {
		var ev sandbox.Event
		var at int64
		if err := scan(&ev.Seq, &ev.UID, &ev.Owner, &at, &ev.Type, &ev.Status, &ev.Reason, &ev.Detail); err != nil {
			return err
		}
		ev.Time = fromNanos(at)
		all = append(all, ev)
		return nil
	}, "SELECT seq, uid, owner, time, type, status, reason, detail FROM events WHERE uid = ? AND seq > ? ORDER BY seq LIMIT ?", uid, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", classify(err))
	}
	return all, nil
}
