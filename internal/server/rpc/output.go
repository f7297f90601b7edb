package rpc

import (
	"io"
	"sync"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// output sends the messages of a command's stream, from the goroutine that delivers
// what the command wrote and from the call's own. Its methods fail once it is closed
// or its client is gone.
type output struct {
	to             func(*sandboxv1.ExecStreamResponse) error
	stdout, stderr outputOf
	broken         chan struct{} // closed when err is set

	mu  sync.Mutex
	err error
}

func newOutput(to func(*sandboxv1.ExecStreamResponse) error) *output {
	o := &output{to: to, broken: make(chan struct{})}
	o.stdout, o.stderr = outputOf{o: o, kind: typeStdout}, outputOf{o: o, kind: typeStderr}
	return o
}

func (o *output) send(m *sandboxv1.ExecStreamResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.breakOff(o.to(m))
	}
	return o.err
}

func (o *output) breakOff(err error) {
	if o.err == nil && err != nil {
		o.err = err
		close(o.broken)
	}
}

// close makes sure that nobody sends any more: the call is about to return.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breakOff(io.ErrClosedPipe)
}

// end sends what is left of the output, and how the command ended.
func (o *output) end(r *sandbox.Result, dir string) error {
	for _, w := range []*outputOf{&o.stdout, &o.stderr} {
		if rest := w.chars.Rest(); len(rest) > 0 {
			_ = w.send(rest) // the last message tells
		}
	}
	why, code := wording.Reason(r, dir), wording.ExitCode(r)
	switch {
	case why == "":
	case wording.IsFailure(r):
		return o.fail(why)
	default:
		_ = o.stderr.send([]byte(why))
	}
	return o.send(&sandboxv1.ExecStreamResponse{Type: typeExit, ExitCode: &code})
}

// fail sends an error, as the last message.
func (o *output) fail(text string) error {
	return o.send(&sandboxv1.ExecStreamResponse{Type: typeError, Data: text})
}

// outputOf is one of the two streams.
type outputOf struct {
	o     *output
	kind  string
	chars wording.Chars
}

// maxChunk bounds what one message has of the output, in bytes.
const maxChunk = 64 << 10

// Write implements io.Writer. It waits for a slow client, and the command with it.
func (w *outputOf) Write(p []byte) (int, error) {
	n := len(p)
	for p = w.chars.Whole(p); len(p) > 0; {
		cut := min(len(p), maxChunk)
		if cut < len(p) {
			cut -= wording.SplitLen(p[:cut])
		}
		if err := w.send(p[:cut]); err != nil {
			return n, err
		}
		p = p[cut:]
	}
	return n, nil
}

func (w *outputOf) send(p []byte) error {
	return w.o.send(&sandboxv1.ExecStreamResponse{Type: w.kind, Data: wording.Text(p)})
}
