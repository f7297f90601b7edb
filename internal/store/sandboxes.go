package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Kinds of ids that agentbox itself gives. Aliases have those of their doors.
const (
	kindShort = "short"
	kindLabel = "label"
	kindName  = "name"
)

// Sandboxes returns all sandboxes. One whose record can't be read has no more than
// its uid, owner, ids, status, last activity and epoch: Created is zero.
func (s *Store) Sandboxes(ctx context.Context) ([]sandbox.Sandbox, error) {
	var all []sandbox.Sandbox
	err := query(ctx, s.r, func(scan func(...any) error) error {
		var sb sandbox.Sandbox
		var uid, owner, short, label, name, record, status string
		var active, epoch int64
		if err := scan(&uid, &owner, &short, &label, &name, &status, &active, &epoch, &record); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(record), &sb); err != nil || sb.UID != uid {
			sb = sandbox.Sandbox{UID: uid, Owner: owner, Short: short, Label: label, Name: name}
		}
		sb.Status, sb.LastActivity, sb.Epoch = sandbox.State(status), fromNanos(active), uint64(epoch)
		all = append(all, sb)
		return nil
	}, `SELECT s.uid, s.owner, coalesce(max(value) FILTER (WHERE kind = '`+kindShort+`'), ''), coalesce(max(value) FILTER (WHERE kind = '`+kindLabel+`'), ''),
		coalesce(max(value) FILTER (WHERE kind = '`+kindName+`'), ''), status, last_activity, epoch, record
		FROM sandboxes s LEFT JOIN ids USING (uid) GROUP BY s.uid ORDER BY s.uid`)
	if err != nil {
		return nil, fmt.Errorf("read the sandboxes: %w", classify(err))
	}
	return all, nil
}

// Admit records a new sandbox, if the limits allow it and nothing of it is in
// use: *sandbox.LimitError, *sandbox.ClashError, sandbox.ErrDrawAgain. If its
// key was used for the same request before, nothing is recorded and the uid of
// the sandbox of that time is returned; for another request it is a
// *sandbox.ReplayError.
func (s *Store) Admit(ctx context.Context, a sandbox.Admission, ev *sandbox.Event) (before string, err error) {
	err = s.write(ctx, "record a new sandbox", func(t tx) error {
		request := sandbox.Repeatable{Owner: a.Sandbox.Owner, Key: a.Key, Request: a.Request, Made: a.Sandbox.UID, Created: a.Sandbox.Created}
		if a.Key != "" {
			known, err := t.repeated(request)
			if err != nil {
				return err
			}
			if known != nil {
				before = known.Made
				return nil
			}
		}
		if err := t.room(a); err != nil {
			return err
		}
		sb := a.Sandbox
		taken, err := t.number(`SELECT EXISTS (SELECT 1 FROM ids WHERE value IN (?1, ?2, ?3))
			OR EXISTS (SELECT 1 FROM sandboxes WHERE uid = ?3) OR EXISTS (SELECT 1 FROM tombstone_ids WHERE value IN (?1, ?2, ?3))`,
			sb.Short, sb.Label, sb.UID)
		if err != nil {
			return err
		}
		if taken != 0 {
			return sandbox.ErrDrawAgain
		}
		if err := t.put(sb); err != nil {
			return err
		}
		if err := t.putIDs(sb); err != nil {
			return err
		}
		if a.Key != "" {
			if err := t.remember(request); err != nil {
				return err
			}
		}
		return t.event(ev)
	})
	return before, err
}

func (t tx) room(a sandbox.Admission) error {
	total, err := t.number("SELECT count(*) FROM sandboxes")
	if err != nil {
		return err
	}
	own, err := t.number("SELECT count(*) FROM sandboxes WHERE owner = ?", a.Sandbox.Owner)
	switch {
	case err != nil:
		return err
	case own >= a.MaxOwner:
		return sandbox.TooMany(a.MaxOwner, true)
	case total >= a.MaxTotal:
		return sandbox.TooMany(a.MaxTotal, false)
	}
	return nil
}

func (t tx) put(sb sandbox.Sandbox) error {
	record, err := json.Marshal(sb)
	if err != nil {
		return fmt.Errorf("encode a sandbox: %w", err)
	}
	return t.exec(`INSERT INTO sandboxes (uid, owner, status, last_activity, epoch, record) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (uid) DO UPDATE SET status = excluded.status, last_activity = excluded.last_activity, epoch = excluded.epoch, record = excluded.record`,
		sb.UID, sb.Owner, string(sb.Status), nanos(sb.LastActivity), int64(sb.Epoch), string(record))
}

func (t tx) putIDs(sb sandbox.Sandbox) error {
	ids := append([]sandbox.Alias{{Kind: kindShort, Value: sb.Short}, {Kind: kindLabel, Value: sb.Label}}, sb.Aliases...)
	if sb.Name != "" {
		ids = append(ids, sandbox.Alias{Kind: kindName, Value: sb.Name})
	}
	for _, id := range ids {
		err := t.exec("INSERT INTO ids (uid, owner, kind, value) VALUES (?, ?, ?, ?)", sb.UID, sb.Owner, id.Kind, id.Value)
		switch {
		case isTaken(err) && (id.Kind == kindShort || id.Kind == kindLabel):
			return sandbox.ErrDrawAgain
		case isTaken(err):
			return &sandbox.ClashError{Field: id.Kind, Value: id.Value}
		case err != nil:
			return err
		}
	}
	return nil
}

// Save records what a sandbox is now, and why, if ev is not nil. Its ids don't
// change.
func (s *Store) Save(ctx context.Context, sb sandbox.Sandbox, ev *sandbox.Event) error {
	return s.write(ctx, "record sandbox "+sb.Short, func(t tx) error {
		there, err := t.number("SELECT count(*) FROM sandboxes WHERE uid = ?", sb.UID)
		if err != nil {
			return err
		}
		if there == 0 {
			return fmt.Errorf("no sandbox %s: %w", sb.Short, errdefs.ErrNotFound)
		}
		if err := t.put(sb); err != nil {
			return err
		}
		return t.event(ev)
	})
}

// Touch records when sandboxes were last used, by uid. Those that are gone are
// left out.
func (s *Store) Touch(ctx context.Context, used map[string]time.Time) error {
	return s.write(ctx, "record activity", func(t tx) error {
		for uid, at := range used {
			if err := t.exec("UPDATE sandboxes SET last_activity = ? WHERE uid = ?", nanos(at), uid); err != nil {
				return err
			}
		}
		return nil
	})
}

// Forget removes a sandbox whose creation failed, as if it had never been asked
// for. One that does not exist is success.
func (s *Store) Forget(ctx context.Context, uid string) error {
	err := s.write(ctx, "forget a sandbox", func(t tx) error {
		for _, table := range []string{"sandboxes", "idempotency", "events"} {
			if err := t.exec("DELETE FROM "+table+" WHERE uid = ?", uid); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.wipe(ctx)
	}
	return err
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
