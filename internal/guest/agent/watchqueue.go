package agent

import (
	"context"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

const (
	// maxEvents and maxEventBytes bound what a watch holds for a client that does
	// not read.
	maxEvents     = 8 << 10
	maxEventBytes = 4 << 20
	// eventFrame is about how many bytes of events go into one frame.
	eventFrame = 16 << 10
)

// eventQueue holds events for a client. When it is full, further ones are lost
// and that is told in their place.
type eventQueue struct {
	mu     sync.Mutex
	events []*guestv1.WatchEvent
	size   int
	lost   bool
	ended  bool
	wake   chan struct{} // holds an element when there is something to take
}

func newEventQueue() *eventQueue { return &eventQueue{wake: make(chan struct{}, 1)} }

func (q *eventQueue) add(kind guestv1.WatchKind, rel string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.signal()
	if n := len(q.events); n > 0 && q.events[n-1].Kind == kind && string(q.events[n-1].Path) == rel {
		return // a file that is written in many pieces
	}
	if q.lost {
		return
	}
	if len(q.events) >= maxEvents || q.size > maxEventBytes {
		kind, rel, q.lost = guestv1.WatchKind_WATCH_KIND_OVERFLOW, "", true
	}
	q.events = append(q.events, &guestv1.WatchEvent{Kind: kind, Path: []byte(rel)})
	q.size += len(rel) + 64
}

func (q *eventQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// end tells that no more come.
func (q *eventQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.signal()
}

// takeAll returns what there is. more is false after the last.
func (q *eventQueue) takeAll() (events []*guestv1.WatchEvent, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	events = q.events
	q.events, q.size, q.lost = nil, 0, false
	return events, !q.ended
}

// send writes frames of events until the watch or its client ends.
func (t *watcher) send(ctx context.Context, w io.Writer, flush func() error) error {
	for {
		select {
		case <-t.queue.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		events, more := t.queue.takeAll()
		if t.info && len(events) > 0 {
			t.describe(events)
		}
		if err := writeEvents(w, events); err != nil {
			return err
		}
		if err := flush(); err != nil || !more {
			return err
		}
	}
}

// describe adds what is there now to events after which something should be.
func (t *watcher) describe(events []*guestv1.WatchEvent) {
	_ = t.files.as(t.user, func(fsys FS) error {
		for _, e := range events {
			switch e.GetKind() {
			case guestv1.WatchKind_WATCH_KIND_CREATE, guestv1.WatchKind_WATCH_KIND_WRITE, guestv1.WatchKind_WATCH_KIND_CHMOD:
				if i, err := fsys.Stat(join(t.root, string(e.GetPath())), false); err == nil {
					i.Path = nil // the event has it
					e.Info = i
				}
			}
		}
		return nil
	})
}

func writeEvents(w io.Writer, events []*guestv1.WatchEvent) error {
	for len(events) > 0 {
		n, size := 0, 0
		for n < len(events) && (n == 0 || size < eventFrame) {
			size += proto.Size(events[n]) + 8
			n++
		}
		b, err := proto.Marshal(&guestv1.WatchEvents{Events: events[:n]})
		if err != nil {
			return err
		}
		if err := guest.WriteFrame(w, guest.FrameWatch, b); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
