package runtime

import (
	"context"
	"sync"
)

// Events passes the ends of sandboxes to all watchers of a back end, as
// Runtime.Watch wants it: queues have no bound, which is safe because a sandbox
// ends once. The zero value is ready to use.
type Events struct {
	mu     sync.Mutex
	subs   map[*subscription]struct{}
	closed bool
	wg     sync.WaitGroup
}

type subscription struct {
	queue []Event // under Events.mu
	wake  chan struct{}
	stop  context.CancelFunc
}

// Publish queues ev for every watcher. It does not wait for them.
func (e *Events) Publish(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		s.queue = append(s.queue, ev)
		select {
		case s.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// Watch returns what is published from now on, until ctx or e ends.
func (e *Events) Watch(ctx context.Context) <-chan Event {
	out := make(chan Event)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		close(out)
		return out
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{wake: make(chan struct{}, 1), stop: cancel}
	if e.subs == nil {
		e.subs = map[*subscription]struct{}{}
	}
	e.subs[s] = struct{}{}
	e.wg.Go(func() { e.deliver(ctx, s, out) })
	return out
}

func (e *Events) deliver(ctx context.Context, s *subscription, out chan<- Event) {
	defer close(out)
	defer s.stop()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.subs, s)
	}()
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		e.mu.Lock()
		queue := s.queue
		s.queue = nil
		e.mu.Unlock()
		for _, ev := range queue {
			select {
			case out <- ev:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close ends all watchers and waits until their channels are closed.
func (e *Events) Close() {
	e.mu.Lock()
	e.closed = true
	for s := range e.subs {
		s.stop()
	}
	e.mu.Unlock()
	e.wg.Wait()
}
