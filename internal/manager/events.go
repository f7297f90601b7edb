package manager

import (
	"context"
	"fmt"
	"io"

	"agentbox/internal/sandbox"
)

// Events returns up to sandbox.MaxPage events of the caller's sandbox that come
// after the number after, oldest first.
func (m *Manager) Events(ctx context.Context, c sandbox.Caller, id string, after int64) ([]sandbox.Event, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return m.opts.Store.Events(ctx, b.uid(), after, sandbox.MaxPage)
}

// Follower follows the events of a sandbox to its end. Following is no activity.
type Follower struct {
	m     *Manager
	b     *box
	after int64
}

// Follow follows the events of the caller's sandbox that come after the number
// after, 0 for all that are kept.
func (m *Manager) Follow(ctx context.Context, c sandbox.Caller, id string, after int64) (*Follower, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("follow events: %w", err)
	}
	return &Follower{m, b, after}, nil
}

// Next waits for events that were not returned yet. io.EOF: the sandbox is gone
// and all were.
func (f *Follower) Next(ctx context.Context) ([]sandbox.Event, error) {
	for {
		f.b.mu.Lock()
		changed, gone := f.b.events, f.b.isGone()
		f.b.mu.Unlock()
		evs, err := f.m.opts.Store.Events(ctx, f.b.uid(), f.after, sandbox.MaxPage)
		if err != nil {
			return nil, err
		}
		if len(evs) > 0 {
			f.after = evs[len(evs)-1].Seq
			return evs, nil
		}
		if gone {
			return nil, io.EOF
		}
		select {
		case <-changed:
		case <-f.b.gone:
		case <-f.m.ctx.Done():
			return nil, errDraining
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
