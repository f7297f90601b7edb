package wire

import (
	"context"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/store"
)

// storedKeys are the API keys of a store, as package auth wants them.
type storedKeys struct{ store *store.Store }

// AddKey implements auth.Keys.
func (s storedKeys) AddKey(ctx context.Context, k auth.Key) error {
	return s.store.AddKey(ctx, store.Key{ID: k.ID, Owner: k.Owner, Name: k.Name, Admin: k.Admin, Hash: k.Hash, Created: k.CreatedAt, Revoked: k.RevokedAt})
}

// KeyByHash implements auth.Keys.
func (s storedKeys) KeyByHash(ctx context.Context, h auth.Hash) (auth.Key, error) {
	k, err := s.store.KeyByHash(ctx, h)
	return keyOf(k), err
}

// ListKeys implements auth.Keys.
func (s storedKeys) ListKeys(ctx context.Context) ([]auth.Key, error) {
	stored, err := s.store.Keys(ctx)
	var all []auth.Key
	for _, k := range stored {
		all = append(all, keyOf(k))
	}
	return all, err
}

// RevokeKey implements auth.Keys.
func (s storedKeys) RevokeKey(ctx context.Context, id string, at time.Time) (auth.Key, error) {
	k, err := s.store.RevokeKey(ctx, id, at)
	return keyOf(k), err
}

func keyOf(k store.Key) auth.Key {
	return auth.Key{ID: k.ID, Owner: k.Owner, Name: k.Name, Admin: k.Admin, Hash: k.Hash, CreatedAt: k.Created, RevokedAt: k.Revoked}
}
