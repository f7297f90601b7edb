package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"agentbox/internal/heartbeat"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// reply writes an answer that is no JSON: bytes of any length, a stream of
// events, a WebSocket. What can be refused was refused before.
type reply func(w http.ResponseWriter, r *http.Request)

type replyOutput struct{ Body func(huma.Context) }

// routeReply declares a route whose answer is a reply. An error comes instead of it.
func routeReply[I any](a *API, op huma.Operation, r server.Route, f func(ctx context.Context, c sandbox.Caller, in *I) (reply, error)) {
	route(a, op, r, func(ctx context.Context, c sandbox.Caller, in *I) (*replyOutput, error) {
		answer, err := f(ctx, c, in)
		if err != nil {
			return nil, err
		}
		return &replyOutput{func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			answer(w, r)
		}}, nil
	})
}

// Content is what a request sends as it is, of any length.
type Content struct{ request *http.Request }

// Resolve implements huma.Resolver.
func (b *Content) Resolve(ctx huma.Context) []error {
	b.request, _ = humago.Unwrap(ctx)
	return nil
}

// answers documents what a route sends when it is done.
func answers(status, doc string, types ...string) map[string]*huma.Response {
	content := map[string]*huma.MediaType{}
	for _, t := range types {
		content[t] = mediaOf(t)
	}
	return map[string]*huma.Response{status: {Description: doc, Content: content}}
}

// takes documents what a route is sent.
func takes(doc string, types ...string) *huma.RequestBody {
	content := map[string]*huma.MediaType{}
	for _, t := range types {
		content[t] = mediaOf(t)
	}
	return &huma.RequestBody{Description: doc, Content: content}
}

func mediaOf(contentType string) *huma.MediaType {
	if contentType == typeEvents {
		return &huma.MediaType{} // OpenAPI 3.1 can't tell of events
	}
	if strings.HasPrefix(contentType, "text/") {
		return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
}

// Types of contents.
const (
	typeBytes  = "application/octet-stream"
	typeEvents = "text/event-stream"
)

// cut ends an answer that can't be completed so that its receiver can't take it
// for whole.
func cut() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to cut an answer that is not whole
}

// quiet is how long a stream may have nothing to say before it says so. Only tests
// change it.
var quiet = heartbeat.Every

// events is an eventStream that several goroutines use. Its methods fail once it
// is closed or broken.
type events struct {
	mu     sync.Mutex
	s      *eventStream
	broken chan struct{} // closed when err is set
	err    error
}

// openEvents begins the answer.
func openEvents(w http.ResponseWriter) *events {
	return &events{s: newEventStream(w), broken: make(chan struct{})}
}

// send sends an event. An empty id leaves the client's last one as it is.
func (e *events) send(name, id string, data any) error {
	return e.do(func() error { return e.s.send(id, name, data) })
}

// fail sends an error as the last event.
func (e *events) fail(ctx context.Context, err error) {
	_ = e.send("error", "", server.Explain(ctx, err)) // a client that is gone needs no error
}

func (e *events) do(send func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.breakOff(send())
	}
	return e.err
}

// breakOff remembers why nothing more can be sent; mu is held.
func (e *events) breakOff(err error) {
	if e.err == nil && err != nil {
		e.err = fmt.Errorf("send an event: %w", err)
		close(e.broken)
	}
}

// close makes sure that nobody writes to the answer any more: its handler is
// about to return.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breakOff(io.ErrClosedPipe)
}

// why a stream that could go on ends.
type end int

const (
	ended    end = iota // what it tells of is over
	left                // its client is gone
	stopping            // the server is
)

// pulse keeps the stream alive until done, until its client is gone or until the
// server stops.
func (e *events) pulse(ctx context.Context, done, draining <-chan struct{}) end {
	t := time.NewTicker(quiet)
	defer t.Stop()
	for {
		select {
		case <-done:
			return ended
		case <-ctx.Done():
			return left
		case <-e.broken:
			return left
		case <-draining:
			return stopping
		case <-t.C:
			_ = e.do(e.s.alive) // broken tells
		}
	}
}

// errStopping is what streams end with when the server stops.
func errStopping() error {
	return server.NewProblem(server.CodeUnavailable, "the server is about to stop")
}

// UnmarshalText reads a parameter.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := sandbox.ParseDuration("", string(text))
	if err != nil {
		return errDuration
	}
	d.Value = v
	return nil
}

var errDuration = errors.New("it must be a duration: a number of seconds, or a text such as 1m30s")
