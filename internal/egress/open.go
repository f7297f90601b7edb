package egress

import (
	"sync"
	"time"
)

// openWatch records a flow while it is open: after [Timeouts.Open], and each time
// when twice as long has passed. So a connection that lasts is seen while it does,
// also when this program does not live to see its end, and few records come of it.
type openWatch struct {
	mu     sync.Mutex
	timer  *time.Timer
	next   time.Duration
	record func() // nil: the flow has ended
}

// opened begins to watch a flow that has a connection.
func (c *client) opened(f *flow, up *upstream) {
	f.watch.stop()
	r := c.p.o.Recorder
	if r == nil {
		return
	}
	rec, up0, down0 := f.rec, up.up.Load(), up.down.Load()
	rec.Open = true
	w := &openWatch{next: c.p.o.Timeouts.Open, record: func() {
		rec.BytesUp, rec.BytesDown, rec.Duration = up.up.Load()-up0, up.down.Load()-down0, time.Since(rec.Time)
		r.Record(rec)
	}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.next, w.look)
	f.watch = w
}

func (w *openWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.record == nil {
		return
	}
	w.record()
	w.next *= 2
	w.timer.Reset(w.next)
}

// stop ends it: no record comes after the one of the end.
func (w *openWatch) stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record = nil
	w.timer.Stop()
}
