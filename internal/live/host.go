// Package live puts a back end and guest sessions together into sandboxes that
// run: it makes them, takes over those that another process made, runs commands
// in them, and tells why a command or a sandbox ended. Who uses it decides which
// sandboxes there are and keeps their images.
package live

import (
	"context"
	"sync"

	"agentbox/internal/runtime"
)

// Host has the sandboxes of one back end that this process is connected to.
type Host struct {
	rt   runtime.Runtime
	stop context.CancelFunc
	done chan struct{} // the event loop ended

	mu   sync.Mutex
	ends map[string]*end // by sandbox id
}

// end is how a sandbox ended.
type end struct {
	done  chan struct{} // closed when event is set
	event runtime.Event
}

// NewHost begins to listen for the ends of rt's sandboxes. It does not own rt.
func NewHost(rt runtime.Runtime) *Host {
	ctx, stop := context.WithCancel(context.Background())
	h := &Host{rt: rt, stop: stop, done: make(chan struct{}), ends: map[string]*end{}}
	go h.listen(rt.Watch(ctx))
	return h
}

// Close lets go of the back end. The sandboxes live on.
func (h *Host) Close() {
	h.stop()
	<-h.done
}

func (h *Host) listen(events <-chan runtime.Event) {
	defer close(h.done)
	for ev := range events {
		h.ended(ev)
	}
}

// ended notes how a sandbox ended; the first word counts.
func (h *Host) ended(ev runtime.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.ends[ev.ID]; ok {
		e.event = ev
		close(e.done)
		delete(h.ends, ev.ID)
	}
}

func (h *Host) expect(id string) *end {
	e := &end{done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[id] = e
	return e
}

// forget stops waiting for e, unless another one of the same id is expected.
func (h *Host) forget(id string, e *end) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ends[id] == e {
		delete(h.ends, id)
	}
}
