package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Bury replaces a sandbox by its tombstone; its ids are free from then on. When
// there is no such sandbox any more, it only sees to the tombstone.
func (s *Store) Bury(ctx context.Context, dead sandbox.Tombstone, ev *sandbox.Event) error {
	record, err := json.Marshal(dead)
	if err != nil {
		return fmt.Errorf("encode a tombstone: %w", err)
	}
	err = s.write(ctx, "bury sandbox "+dead.Short, func(t tx) error {
		if err := t.exec("DELETE FROM sandboxes WHERE uid = ?", dead.UID); err != nil {
			return err
		}
		err := t.exec("INSERT INTO tombstones (uid, owner, destroyed, record) VALUES (?, ?, ?, ?) ON CONFLICT (uid) DO NOTHING",
			dead.UID, dead.Owner, nanos(dead.Destroyed), string(record))
		if err != nil {
			return err
		}
		ids := []string{dead.UID, dead.Short, dead.Label}
		if dead.Name != "" {
			ids = append(ids, dead.Name)
		}
		for _, a := range dead.Aliases {
			ids = append(ids, a.Value)
		}
		for _, id := range ids {
			if err := t.exec("INSERT OR IGNORE INTO tombstone_ids (uid, owner, value) VALUES (?, ?, ?)", dead.UID, dead.Owner, id); err != nil {
				return err
			}
		}
		return t.event(ev)
	})
	if err == nil {
		s.wipe(ctx)
	}
	return err
}

// wipe takes what was deleted out of the write-ahead log: the environment of a
// sandbox, which may hold secrets, ends with it. What a reader holds up is left to
// the next time.
func (s *Store) wipe(ctx context.Context) {
	_, _ = s.w.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(TRUNCATE)")
}

// Tombstone finds what is left of an owner's sandbox by any of its ids, the
// latest if there are several. NotFound when there is none.
func (s *Store) Tombstone(ctx context.Context, owner, id string) (sandbox.Tombstone, error) {
	var dead sandbox.Tombstone
	var record string
	err := s.r.QueryRowContext(ctx, `SELECT record FROM tombstones WHERE uid IN (SELECT uid FROM tombstone_ids WHERE owner = ? AND value = ?)
		ORDER BY destroyed DESC LIMIT 1`, owner, id).Scan(&record)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return dead, fmt.Errorf("no tombstone: %w", errdefs.ErrNotFound)
	case err != nil:
		return dead, fmt.Errorf("find a tombstone: %w", classify(err))
	}
	if err := json.Unmarshal([]byte(record), &dead); err != nil {
		return dead, fmt.Errorf("decode a tombstone: %w", err)
	}
	return dead, nil
}

// Expire removes tombstones with their events, and keys of idempotent requests,
// whose time is over.
func (s *Store) Expire(ctx context.Context, now time.Time) error {
	return s.write(ctx, "remove what is over", func(t tx) error {
		dead := nanos(now.Add(-sandbox.KeepTombstone))
		err := t.exec("DELETE FROM events WHERE uid IN (SELECT uid FROM tombstones WHERE destroyed <= ?)", dead)
		if err != nil {
			return err
		}
		if err := t.exec("DELETE FROM tombstones WHERE destroyed <= ?", dead); err != nil {
			return err
		}
		return t.exec("DELETE FROM idempotency WHERE created <= ?", nanos(now.Add(-sandbox.KeepIdempotency)))
	})
}
