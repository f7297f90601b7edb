package auth

import (
	"context"
	"sync"
	"time"

	"agentbox/internal/sandbox"
)

// present are the requests that were let in and are not over. An owner has a
// bounded number of them at once: a stream that nobody ends costs memory as long as
// it is open, and rates bound only how fast more are opened.
type present struct {
	most int // of one owner; 0: any number

	mu      sync.Mutex
	byOwner map[string]int
}

// enter counts a request; leave takes it back.
func (p *present) enter(owner string) error {
	if p.most == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byOwner[owner] >= p.most {
		return &sandbox.LimitError{Quota: true, Text: "too many requests and streams of this owner are open", RetryAfter: time.Second}
	}
	p.byOwner[owner]++
	return nil
}

func (p *present) leave(owner string) {
	if p.most == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byOwner[owner]--; p.byOwner[owner] == 0 {
		delete(p.byOwner, owner)
	}
}

// errRevoked ends what was begun with a key that is revoked.
var errRevoked = unauthenticated("the API key was revoked")

// holders are the requests that go on by a key, which end when it is revoked.
type holders struct {
	mu    sync.Mutex
	byKey map[string]map[*holder]struct{}
	// revoked are the keys that were revoked while this process runs: a request
	// may have found its key good just before.
	revoked map[string]bool
}

type holder struct{ cancel context.CancelCauseFunc }

// hold returns a context that ends when the key is revoked, or release is called.
func (h *holders) hold(ctx context.Context, key string) (held context.Context, release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revoked[key] {
		return ctx, nil, errWrongKey
	}
	held, cancel := context.WithCancelCause(ctx)
	one := &holder{cancel}
	if h.byKey[key] == nil {
		h.byKey[key] = map[*holder]struct{}{}
	}
	h.byKey[key][one] = struct{}{}
	return held, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.byKey[key], one); len(h.byKey[key]) == 0 {
			delete(h.byKey, key)
		}
		cancel(nil)
	}, nil
}

// end ends what goes on by a key that was revoked.
func (h *holders) end(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked[key] = true
	for one := range h.byKey[key] {
		one.cancel(errRevoked)
	}
}
