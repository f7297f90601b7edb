// Package authtest has a store of keys for tests.
package authtest

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
)

// Memory keeps keys as a store does. The zero value is empty.
type Memory struct {
	mu   sync.Mutex
	keys []auth.Key
	err  error
}

// Break makes all calls fail.
func (m *Memory) Break(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// AddKey implements auth.Keys.
func (m *Memory) AddKey(_ context.Context, k auth.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	for _, old := range m.keys {
		if old.ID == k.ID {
			return errdefs.ErrAlreadyExists
		}
	}
	m.keys = append(m.keys, k)
	return nil
}

// KeyByHash implements auth.Keys.
func (m *Memory) KeyByHash(_ context.Context, h auth.Hash) (auth.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return auth.Key{}, m.err
	}
	for _, k := range m.keys {
		if k.Hash == h {
			return k, nil
		}
	}
	return auth.Key{}, errdefs.ErrNotFound
}

// ListKeys implements auth.Keys.
func (m *Memory) ListKeys(context.Context) ([]auth.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]auth.Key(nil), m.keys...), m.err
}

// RevokeKey implements auth.Keys.
func (m *Memory) RevokeKey(_ context.Context, id string, at time.Time) (auth.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.keys {
		if k := &m.keys[i]; k.ID == id {
			if !k.Revoked() {
				k.RevokedAt = at
			}
			return *k, nil
		}
	}
	return auth.Key{}, errdefs.ErrNotFound
}
