//go:build linux

package volume

import (
	"context"
	"sync"
)

const (
	// maxArchives is how many archives are written and read at once, more wait: each
	// may take maxLinked of memory.
	maxArchives = 8
	// maxOwnerArchives is how many of them are one owner's, so that it takes four slow
	// owners to keep the others waiting.
	maxOwnerArchives = 2
)

// places are for what few may do at once, and fewer of each owner.
type places struct {
	mu      sync.Mutex
	free    int
	each    int            // the most of one owner
	taken   map[string]int // by owner; no zeros
	waiting []*waiter      // who came first is first
}

type waiter struct {
	owner string
	turn  chan struct{} // closed when it has a place
}

func newPlaces(all, each int) *places {
	return &places{free: all, each: each, taken: map[string]int{}}
}

// take waits for a place. Of those who wait it goes to an owner with the fewest
// places, and among such to who came first. The caller gives it back with leave.
func (p *places) take(ctx context.Context, owner string) error {
	w := &waiter{owner, make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.admit()
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		p.giveUp(w)
		return context.Cause(ctx)
	}
}

func (p *places) leave(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.putBack(owner)
}

// giveUp ends the waiting of w, who may have got a place in the same moment.
func (p *places) giveUp(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.waiting {
		if other == w {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
	p.putBack(w.owner)
}

// putBack frees a place of an owner's; mu is held.
func (p *places) putBack(owner string) {
	p.free++
	if p.taken[owner]--; p.taken[owner] == 0 {
		delete(p.taken, owner)
	}
	p.admit()
}

// admit gives free places away; mu is held.
func (p *places) admit() {
	for p.free > 0 {
		next := -1
		for i, w := range p.waiting {
			if n := p.taken[w.owner]; n < p.each && (next < 0 || n < p.taken[p.waiting[next].owner]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = append(p.waiting[:next], p.waiting[next+1:]...)
		p.free--
		p.taken[w.owner]++
		close(w.turn)
	}
}
