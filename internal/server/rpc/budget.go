package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"agentbox/internal/sandbox"
)

// Bounds of what large messages hold together, in bytes as they are sent. In memory
// they are up to four times as large for a moment.
const (
	// smallMessage is what each call may send without being counted.
	smallMessage = maxCall
	// maxHeld is for all callers, maxOwner for each owner: one of the largest messages.
	maxHeld  = 2 * maxMessage
	maxOwner = maxMessage
	// largeWait is how long a message waits for others to go, unless Parts say.
	largeWait = 10 * time.Second
)

// budget bounds the memory of large messages that are on their way or at work, over all
// callers and for each owner.
type budget struct {
	all  *semaphore.Weighted
	wait time.Duration

	mu     sync.Mutex
	owners map[string]*share
}

// share is an owner's part while somebody uses it.
type share struct {
	*semaphore.Weighted
	users int
}

func newBudget(wait time.Duration) *budget {
	return &budget{all: semaphore.NewWeighted(maxHeld), wait: wait, owners: map[string]*share{}}
}

func (b *budget) join(owner string) *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.owners[owner]
	if s == nil {
		s = &share{Weighted: semaphore.NewWeighted(maxOwner)}
		b.owners[owner] = s
	}
	s.users++
	return s
}

func (b *budget) leave(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.owners[owner]
	if s.users--; s.users == 0 {
		delete(b.owners, owner)
	}
}

// held is what one call holds of a budget. Its own goroutine uses it.
type held struct {
	of    *budget
	owner string
	share *share // nil: nothing was ever held
	n     int64
}

// need holds as much as a message of that size takes. It waits for others, within bounds.
func (h *held) need(ctx context.Context, size int64) error {
	more := min(size, maxMessage) - smallMessage - h.n
	if more <= 0 {
		return nil
	}
	if h.share == nil {
		h.share = h.of.join(h.owner)
	}
	waiting, cancel := context.WithTimeout(ctx, h.of.wait)
	defer cancel()
	limit, quota := int64(maxOwner), true
	err := h.share.Acquire(waiting, more)
	if err == nil {
		limit, quota = maxHeld, false
		if err = h.of.all.Acquire(waiting, more); err != nil {
			h.share.Release(more)
		}
	}
	switch {
	case err == nil:
		h.n += more
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &sandbox.LimitError{Quota: quota, RetryAfter: time.Second, Text: fmt.Sprintf(
		"other large messages take %s at most together, and did not go within %v", sandbox.FormatSize(limit), h.of.wait)}
}

// settle gives back what a message of that size does not take.
func (h *held) settle(size int64) {
	less := h.n - max(size-smallMessage, 0)
	if less <= 0 {
		return
	}
	h.n -= less
	h.of.all.Release(less)
	h.share.Release(less)
}

// end gives back everything.
func (h *held) end() {
	h.settle(0)
	if h.share != nil {
		h.of.leave(h.owner)
	}
}
