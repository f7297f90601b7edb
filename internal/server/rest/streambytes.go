package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"

	"agentbox/internal/server"
)

// gate is an answer that another goroutine than its handler's writes, until the
// handler closes it.
type gate struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	flush   bool
	broken  context.CancelCauseFunc // told that the client is gone
	began   bool
	closed  bool
}

// newGate makes a gate. With flush every write is sent at once.
func newGate(w http.ResponseWriter, flush bool, broken context.CancelCauseFunc) *gate {
	g := &gate{w: w, control: http.NewResponseController(w), flush: flush, broken: broken}
	if flush {
		g.began = g.control.Flush() == nil // the client learns that it is being served
	}
	return g
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, io.ErrClosedPipe
	}
	g.began = true
	n, err := g.w.Write(p)
	if err == nil && g.flush {
		err = g.control.Flush()
	}
	if err != nil {
		g.broken(err)
	}
	return n, err
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// finish ends the answer: with an error, if it has not begun, else cut.
func (g *gate) finish(r *http.Request, err error) {
	g.close()
	switch {
	case err == nil:
	case g.began:
		server.LogError(r.Context(), err)
		cut()
	default:
		server.WriteError(g.w, r, err)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
