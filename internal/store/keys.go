package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
)

const keyColumns = "id, owner, name, admin, hash, created, revoked"

// AddKey records a new API key.
func (s *Store) AddKey(ctx context.Context, k auth.Key) error {
	return s.write(ctx, "add API key "+k.ID, func(t tx) error {
		return t.exec("INSERT INTO api_keys ("+keyColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Owner, k.Name, k.Admin, k.Hash[:], nanos(k.CreatedAt), nanos(k.RevokedAt))
	})
}

// KeyByHash finds a key, also a revoked one; NotFound if there is none.
func (s *Store) KeyByHash(ctx context.Context, h auth.Hash) (auth.Key, error) {
	k, err := scanKey(s.r.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM api_keys WHERE hash = ?", h[:]).Scan)
	if err != nil {
		return k, fmt.Errorf("find an API key: %w", err)
	}
	return k, nil
}

// ListKeys gives all keys, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]auth.Key, error) {
	var all []auth.Key
	err := query(ctx, s.r, func(scan func(...any) error) error {
		k, err := scanKey(scan)
		all = append(all, k)
		return err
	}, "SELECT "+keyColumns+" FROM api_keys ORDER BY seq")
	if err != nil {
		return nil, fmt.Errorf("list the API keys: %w", classify(err))
	}
	return all, nil
}

// RevokeKey notes since when a key lets nobody in, once: later calls change
// nothing. NotFound if there is no such key.
func (s *Store) RevokeKey(ctx context.Context, id string, when time.Time) (k auth.Key, err error) {
	err = s.write(ctx, "revoke an API key", func(t tx) error {
		if err := t.exec("UPDATE api_keys SET revoked = ? WHERE id = ? AND revoked = 0", nanos(when), id); err != nil {
			return err
		}
		k, err = scanKey(t.QueryRowContext(t.ctx, "SELECT "+keyColumns+" FROM api_keys WHERE id = ?", id).Scan)
		return err
	})
	return k, err
}

func scanKey(scan func(...any) error) (auth.Key, error) {
	var k auth.Key
	var hash []byte
	var created, revoked int64
	err := scan(&k.ID, &k.Owner, &k.Name, &k.Admin, &hash, &created, &revoked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return k, errdefs.ErrNotFound
	case err != nil:
		return k, classify(err)
	case copy(k.Hash[:], hash) != len(k.Hash):
		return k, fmt.Errorf("the hash of API key %s has %d bytes: %w", k.ID, len(hash), errdefs.ErrDataLoss)
	}
	k.CreatedAt, k.RevokedAt = fromNanos(created), fromNanos(revoked)
	return k, nil
}
