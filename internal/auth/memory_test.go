package auth_test

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
)

// memory keeps keys as a store does.
type memory struct {
	mu   sync.Mutex
	keys []auth.Key
	err  error // of every call, if set
}

func (m *memory) AddKey(_ context.Context, k auth.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = append(m.keys, k)
	return m.err
}

func (m *memory) KeyByHash(_ context.Context, h auth.Hash) (auth.Key, error) {
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

func (m *memory) ListKeys(context.Context) ([]auth.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]auth.Key(nil), m.keys...), m.err
}

func (m *memory) RevokeKey(_ context.Context, id string, at time.Time) (auth.Key, error) {
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
