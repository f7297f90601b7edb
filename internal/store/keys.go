package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// Key is an API key without its secret.
type Key struct {
	ID, Owner, Name string
	Admin           bool
	Hash            [sha256.Size]byte // of the secret; finds the key
	Created         time.Time
	Revoked         time.Time // zero: it is good
}

const keyColumns = "SELECT id, owner, name, admin, hash, created, revoked FROM keys"

func scanKey(scan func(...any) error) (k Key, err error) {
	var hash []byte
	var created, revoked int64
	if err := scan(&k.ID, &k.Owner, &k.Name, &k.Admin, &hash, &created, &revoked); err != nil {
		return Key{}, err
	}
	if copy(k.Hash[:], hash) != len(k.Hash) {
		return Key{}, fmt.Errorf("key %s has a hash of %d bytes: %w", k.ID, len(hash), errdefs.ErrInternal)
	}
	k.Created, k.Revoked = fromNanos(created), fromNanos(revoked)
	return k, nil
}

// AddKey records a new key. AlreadyExists for an id or a hash that is there.
func (s *Store) AddKey(ctx context.Context, k Key) error {
	return s.write(ctx, "record key "+k.ID, func(t tx) error {
		return t.exec("INSERT INTO keys (id, owner, name, admin, hash, created, revoked) VALUES (?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Owner, k.Name, k.Admin, k.Hash[:], nanos(k.Created), nanos(k.Revoked))
	})
}

// KeyByHash finds a key, also one that was revoked.
func (s *Store) KeyByHash(ctx context.Context, hash [sha256.Size]byte) (Key, error) {
	return oneKey(s.r.QueryRowContext(ctx, keyColumns+" WHERE hash = ?", hash[:]))
}

func oneKey(row *sql.Row) (Key, error) {
	k, err := scanKey(row.Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Key{}, fmt.Errorf("no such key: %w", errdefs.ErrNotFound)
	case err != nil:
		return Key{}, fmt.Errorf("find a key: %w", classify(err))
	}
	return k, nil
}

// Keys returns all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	var all []Key
	err := query(ctx, s.r, func(scan func(...any) error) error {
		k, err := scanKey(scan)
		all = append(all, k)
		return err
	}, keyColumns+" ORDER BY created, id")
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", classify(err))
	}
	return all, nil
}

// RevokeKey records when a key was revoked. Of one that is revoked already the
// first time stays.
func (s *Store) RevokeKey(ctx context.Context, id string, at time.Time) (k Key, err error) {
	err = s.write(ctx, "revoke key "+id, func(t tx) error {
		if err := t.exec("UPDATE keys SET revoked = ? WHERE id = ? AND revoked = 0", nanos(at), id); err != nil {
			return err
		}
		k, err = oneKey(t.QueryRowContext(t.ctx, keyColumns+" WHERE id = ?", id))
		return err
	})
	return k, err
}
