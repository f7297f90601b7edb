package procapi

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentbox/internal/guest/wording"
)

// heartbeat is how long a stream may be silent.
const heartbeat = 15 * time.Second

// frame is one event of a stream.
type frame struct {
	Type     string  `json:"type"`
	Data     *string `json:"data,omitempty"`
	ExitCode *int32  `json:"exit_code,omitempty"`
}

// events sends a stream of events, with a comment where there is silence.
type events struct {
	to   patient
	gone context.CancelFunc // called when the client takes nothing any more

	mu    sync.Mutex
	pulse *time.Timer
	over  bool
}

// newEvents begins an answer.
func newEvents(w http.ResponseWriter, gone context.CancelFunc) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	e := &events{to: newPatient(w), gone: gone}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pulse = time.AfterFunc(heartbeat, func() { e.write(": ping\n\n") })
	_ = e.to.control.Flush()
	return e
}

// close makes sure that nobody writes any more: the request is about to end.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.pulse.Stop()
}

func (e *events) send(f frame) {
	var b strings.Builder
	b.WriteString("data: ")
	_ = wording.EncodeJSON(&b, f) // to memory, with a line's end
	b.WriteByte('\n')
	e.write(b.String())
}

func (e *events) write(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	_, err := e.to.Write([]byte(text))
	if err == nil {
		err = e.to.control.Flush()
	}
	if err != nil {
		e.over = true
		e.gone()
		return
	}
	e.pulse.Reset(heartbeat)
}

// eventsOf is one of a command's two streams.
type eventsOf struct {
	*events
	kind  string
	chars wording.Chars
}

// Write implements io.Writer. It waits for a slow client, and the command with it.
func (s *eventsOf) Write(p []byte) (int, error) {
	s.text(s.chars.Whole(p))
	return len(p), nil
}

// end sends what was held back, and a last text.
func (s *eventsOf) end(last string) {
	s.text(s.chars.Rest())
	s.text([]byte(last))
}

func (s *eventsOf) text(p []byte) {
	if len(p) > 0 {
		data := wording.Text(p)
		s.send(frame{Type: s.kind, Data: &data})
	}
}
