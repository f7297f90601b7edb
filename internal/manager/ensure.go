package manager

import (
	"context"
	"errors"
	"fmt"

	"agentbox/internal/sandbox"
)

// Ensure returns the caller's sandbox of an id, as soon as it is made, and makes one
// with that id if there is none. made tells which. The id is the first of the
// request's aliases.
func (m *Manager) Ensure(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest) (sb sandbox.Sandbox, made bool, err error) {
	if err := r.Check(); err != nil {
		return sb, false, fmt.Errorf("create a sandbox: %w", err)
	}
	for range ensureTries {
		if b := m.index.find(c.Owner, c.Door, r.Aliases[0].Value); b != nil {
			sb, err = m.await(ctx, b)
			if err != nil && b.isGone() {
				continue // what was waited for is no more, so the id is free again
			}
			b.use()
			return b.snapshot(), false, err
		}
		sb, err = m.Create(ctx, c, r, "")
		var clash *sandbox.ClashError
		if !errors.As(err, &clash) {
			return sb, err == nil, err
		}
	}
	return sb, false, err
}

// ensureTries is how often somebody else may be faster, and gone again.
const ensureTries = 10

// Use counts as a use of the caller's sandbox, if it runs, and returns it.
func (m *Manager) Use(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("use sandbox: %w", err)
	}
	b.use()
	return b.snapshot(), nil
}

// use is a use that is over at once.
func (b *box) use() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.usable() == nil {
		b.touch()
	}
}
