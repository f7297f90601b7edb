//go:build linux

package volume

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// queue lets somebody of an owner's wait for a place; the channel tells of its turn.
func (p *places) queue(t *testing.T, owner string) <-chan error {
	t.Helper()
	p.mu.Lock()
	before := len(p.waiting)
	p.mu.Unlock()
	got := make(chan error, 1)
	go func() { got <- p.take(t.Context(), owner) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.waiting)
		p.mu.Unlock()
		if n > before {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not wait", owner)
		}
	}
}

// A free place goes to who has the fewest, and of such to who came first; nobody has
// more than its part.
func TestPlacesAreShared(t *testing.T) {
	p := newPlaces(3, 2)
	for _, owner := range []string{"a", "a", "b"} {
		must(t, p.take(t.Context(), owner))
	}
	a, b, c, d := p.queue(t, "a"), p.queue(t, "b"), p.queue(t, "c"), p.queue(t, "d")
	for _, step := range []struct {
		leaves string
		turn   <-chan error
	}{{"a", c}, {"c", d}, {"d", a}, {"a", b}} {
		p.leave(step.leaves)
		must(t, <-step.turn)
	}
	if p.free != 0 || p.taken["a"] != 1 || p.taken["b"] != 2 {
		t.Errorf("%+v", p)
	}
	p.leave("a")
	b = p.queue(t, "b") // though a place is free
	must(t, p.take(t.Context(), "a"))
	p.leave("b")
	must(t, <-b)
}

// Who stops waiting takes no place with it.
func TestPlacesOfThoseWhoLeft(t *testing.T) {
	p := newPlaces(1, 1)
	must(t, p.take(t.Context(), "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.take(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w := &waiter{"b", make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.leave("a")
	<-w.turn
	p.giveUp(w) // it had got one
	must(t, p.take(t.Context(), "c"))
	if len(p.taken) != 1 || p.free != 0 || slices.Contains(p.waiting, w) {
		t.Errorf("%+v", p)
	}
}
