package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"agentbox/internal/sandbox"
)

// Remember records a request that may be repeated, before anything is done
// because of it. If its key was used for the same request before, nothing is
// recorded and what is known of that one is returned; for another request it is a
// *sandbox.ReplayError.
func (s *Store) Remember(ctx context.Context, r sandbox.Repeatable) (before *sandbox.Repeatable, err error) {
	err = s.write(ctx, "record a request", func(t tx) error {
		if before, err = t.repeated(r); err != nil || before != nil {
			return err
		}
		return t.remember(r)
	})
	return before, err
}

// Recall returns what is known of a request, nil if that is nothing. Another one
// with the same key is a *sandbox.ReplayError.
func (s *Store) Recall(ctx context.Context, r sandbox.Repeatable) (*sandbox.Repeatable, error) {
	before, err := recall(ctx, s.r, r)
	if err != nil {
		return nil, fmt.Errorf("recall a request: %w", classify(err))
	}
	return before, nil
}

// Answer records that what a request asked for was begun, and its answer if it
// has one. It does so also for a request that was forgotten meanwhile, because
// another one of its kind failed; a key that another request has since is left
// alone. An answer that is there stays when none is given.
func (s *Store) Answer(ctx context.Context, r sandbox.Repeatable) error {
	const upsert = `INSERT INTO idempotency (owner, key, request, uid, created, begun, answer) VALUES (?, ?, ?, ?, ?, 1, ?)
		ON CONFLICT (owner, key) DO UPDATE SET begun = 1, answer = coalesce(excluded.answer, answer) WHERE request = excluded.request`
	return s.write(ctx, "record an answer", func(t tx) error {
		return t.exec(upsert, r.Owner, r.Key, r.Request, r.Made, nanos(r.Created), r.Answer)
	})
}

// Unlearn forgets a request of which nothing came, so that its key is free again.
// One that was begun stays.
func (s *Store) Unlearn(ctx context.Context, r sandbox.Repeatable) error {
	return s.write(ctx, "forget a request", func(t tx) error {
		return t.exec("DELETE FROM idempotency WHERE owner = ? AND key = ? AND request = ? AND begun = 0", r.Owner, r.Key, r.Request)
	})
}

func (t tx) remember(r sandbox.Repeatable) error {
	return t.exec("INSERT INTO idempotency (owner, key, request, uid, created) VALUES (?, ?, ?, ?, ?)", r.Owner, r.Key, r.Request, r.Made, nanos(r.Created))
}

// repeated is recall that forgets a key whose time is over.
func (t tx) repeated(r sandbox.Repeatable) (*sandbox.Repeatable, error) {
	before, err := recall(t.ctx, t.Tx, r)
	if err != nil || before != nil {
		return before, err
	}
	return nil, t.exec("DELETE FROM idempotency WHERE owner = ? AND key = ?", r.Owner, r.Key)
}

// recall returns what is known of the request that used the key before, nil if
// none did within the time that it is kept for.
func recall(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, r sandbox.Repeatable) (*sandbox.Repeatable, error) {
	before := sandbox.Repeatable{Owner: r.Owner, Key: r.Key}
	var created int64
	err := db.QueryRowContext(ctx, "SELECT request, uid, created, begun, answer FROM idempotency WHERE owner = ? AND key = ?", r.Owner, r.Key).
		Scan(&before.Request, &before.Made, &created, &before.Begun, &before.Answer)
	before.Created = fromNanos(created)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil //nolint:nilnil // none is no error
	case err != nil:
		return nil, err
	case r.Created.Sub(before.Created) >= sandbox.KeepIdempotency:
		return nil, nil //nolint:nilnil // so is one that is over
	case !bytes.Equal(before.Request, r.Request):
		return nil, &sandbox.ReplayError{}
	}
	return &before, nil
}
