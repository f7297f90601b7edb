//go:build linux

package volume

import (
	"context"
	"sync"
)

// turns are the places for archives. An owner has few of them: clients that are slow
// on purpose keep their places as long as they like, and would keep others waiting.
type turns struct {
	all chan struct{} // one element for each place that is taken

	mu sync.Mutex
	of map[string]*ownerTurns
}

type ownerTurns struct {
	taken chan struct{}
	users int // who have a place or wait for one
}

func newTurns(all int) *turns {
	return &turns{all: make(chan struct{}, all), of: map[string]*ownerTurns{}}
}

// take waits for a place of the owner.
func (t *turns) take(ctx context.Context, owner string) (leave func(), err error) {
	t.mu.Lock()
	o := t.of[owner]
	if o == nil {
		o = &ownerTurns{taken: make(chan struct{}, max(1, cap(t.all)/4))}
		t.of[owner] = o
	}
	o.users++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(t.of, owner)
		}
	}
	for _, place := range []chan struct{}{o.taken, t.all} {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			if place == t.all {
				<-o.taken
			}
			forget()
			return nil, context.Cause(ctx)
		}
	}
	return func() { <-t.all; <-o.taken; forget() }, nil
}
