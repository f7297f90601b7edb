package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"agentbox/internal/heartbeat"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// eventStream is an answer of server-sent events. One goroutine uses it.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	broken  bool         // the client takes nothing more
	buf     bytes.Buffer // an event: many streams at once must not leave much behind for each
}

func newEventStream(w http.ResponseWriter) *eventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies pass each event on
	w.WriteHeader(http.StatusOK)
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = s.control.Flush() // fails as the next write will
	return s
}

// send writes one event; an empty id is none.
func (s *eventStream) send(id, event string, data any) error {
	s.buf.Reset()
	if id != "" {
		fmt.Fprintf(&s.buf, "id: %s\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\n", event)
	return s.sendData(data)
}

// sendData adds the data to what is in buf, and writes it.
func (s *eventStream) sendData(data any) error {
	s.buf.WriteString("data: ")
	if err := json.NewEncoder(&s.buf).Encode(data); err != nil { // it ends the line
		return fmt.Errorf("encode an event: %w", err)
	}
	s.buf.WriteByte('\n')
	return s.write(s.buf.Bytes())
}

// alive writes a comment, which clients pass over.
func (s *eventStream) alive() error { return s.write([]byte(":\n\n")) }

func (s *eventStream) write(text []byte) error {
	_, err := s.w.Write(text)
	if err == nil {
		err = s.control.Flush()
	}
	s.broken = s.broken || err != nil
	return err
}

// fail says why a stream ends before its time. A client that is gone is no error.
func (s *eventStream) fail(ctx context.Context, err error) {
	if s.broken {
		return
	}
	_ = s.send("", "error", server.Explain(ctx, err)) // a client that is gone needs no reason
}

// each sends what next gives until it fails, its ctx ends, or the server stops.
// It keeps the connection alive while next waits. next ends when its context
// does.
func (a *API) each(ctx context.Context, s *eventStream, next func(context.Context) (send func() error, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type step struct {
		send func() error
		err  error
	}
	steps := make(chan step)
	go func() {
		for {
			var st step
			st.send, st.err = next(ctx)
			select {
			case steps <- st:
			case <-ctx.Done():
				return
			}
			if st.err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(heartbeat.Every)
	defer tick.Stop()
	for {
		var err error
		select {
		case st := <-steps:
			if st.err != nil {
				return st.err
			}
			err = st.send()
		case <-tick.C:
			err = s.alive()
		case <-a.Draining:
			return server.NewProblem(server.CodeUnavailable, "the server is about to stop")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// streamed is the answer of a route that is JSON or, if the client asks for it, a
// stream of events.
type streamed = huma.StreamResponse

// answer writes v as the JSON answer of a route that could also have been a
// stream.
func answer(v any) *streamed {
	return &streamed{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", "application/json")
		_ = marshal(ctx.BodyWriter(), v) // a client that is gone needs no answer
	}}
}

// stream answers with events.
func stream(f func(ctx context.Context, s *eventStream)) *streamed {
	return &streamed{Body: func(ctx huma.Context) {
		_, w := humago.Unwrap(ctx)
		f(ctx.Context(), newEventStream(w))
	}}
}

// routeStreamed declares such a route: T is the type of the JSON answer.
func routeStreamed[T, I any](a *API, op huma.Operation, streamDoc string, f func(ctx context.Context, c sandbox.Caller, in *I) (*streamed, error)) {
	schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json":  {Schema: schema},
		"text/event-stream": {Schema: &huma.Schema{Type: "string", Description: streamDoc}},
	}}}
	route(a, op, server.Route{}, f)
}
