package agentbox

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Process is a command of a sandbox that runs by itself.
type Process struct {
	b      *Box
	execID string
}

// ID is the exec id, by which Box.Process finds the command.
func (p *Process) ID() string { return p.execID }

func (p *Process) in(part string) string { return p.b.in("execs", p.execID, part) }

// Info looks at the command.
func (p *Process) Info(ctx context.Context) (ProcessInfo, error) {
	return ask[ProcessInfo](ctx, p.b.c, call{method: http.MethodGet, path: p.b.in("execs", p.execID), query: exact})
}

// Attach goes through the command's events from a position on, until its end; the zero
// Position is the beginning. Output that is not there any more is ErrOutOfRange.
// Leaving the loop leaves the command as it is.
func (p *Process) Attach(ctx context.Context, from Position) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &follower{b: p.b, yield: yield, execID: p.execID, at: from}
		f.run(ctx, p.b.outputOf(p.execID, from))
	}
}

// Copy writes the command's output from a position on to two writers, nil ones take
// nothing, and returns how it ended.
func (p *Process) Copy(ctx context.Context, from Position, stdout, stderr io.Writer) (*Result, error) {
	return deliver(p.Attach(ctx, from), stdout, stderr)
}

// Output reads one stream of the output from an offset on, as far as it is there now; follow:
// until the command's end. The caller closes it.
func (p *Process) Output(ctx context.Context, stream EventKind, offset int64, follow bool) (io.ReadCloser, error) {
	query := url.Values{"stream": {string(stream)}, "offset": {strconv.FormatInt(offset, 10)}}
	if follow {
		query.Set("follow", "true")
	}
	resp, err := p.b.c.do(ctx, call{method: http.MethodGet, path: p.in("output"), query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// waitFor is how long one request waits for a command's end, in seconds: proxies end
// what is silent for a minute.
const waitFor = 30

// Wait waits for the command's end. Its result has the output that is still there.
func (p *Process) Wait(ctx context.Context) (*Result, error) {
	query := url.Values{"encoding": {"base64"}, "timeout": {strconv.Itoa(waitFor)}}
	for {
		info, err := ask[ProcessInfo](ctx, p.b.c, call{method: http.MethodPost, path: p.in("wait"), query: query, repeatable: true})
		switch {
		case err != nil:
			return nil, err
		case info.Result != nil:
			return info.Result, nil
		}
	}
}

// Write sends bytes to the command's input, which OpenStdin leaves open.
func (p *Process) Write(ctx context.Context, data io.Reader) error {
	return p.b.c.tell(ctx, call{method: http.MethodPost, path: p.in("stdin"), body: data, header: ofBytes()})
}

// CloseStdin ends the command's input.
func (p *Process) CloseStdin(ctx context.Context) error {
	return p.b.c.tell(ctx, call{method: http.MethodPost, path: p.in("stdin"), query: url.Values{"eof": {"true"}}, header: ofBytes()})
}

// ofBytes are the headers of contents.
func ofBytes() http.Header { return http.Header{"Content-Type": {"application/octet-stream"}} }

// Signal sends a signal, such as TERM, to the command alone.
func (p *Process) Signal(ctx context.Context, name string) error { return p.signal(ctx, name, false) }

// Kill ends the command with all that it started. One that has ended is no error.
func (p *Process) Kill(ctx context.Context) error {
	err := p.signal(ctx, "KILL", true)
	if errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotRunning) { // it has ended
		return nil
	}
	return err
}

func (p *Process) signal(ctx context.Context, name string, tree bool) error {
	in := struct {
		Signal string `json:"signal"`
		Tree   bool   `json:"tree,omitempty"`
	}{name, tree}
	return p.b.c.tell(ctx, call{method: http.MethodPost, path: p.in("signal"), in: in})
}

// Resize sets the size of the command's terminal.
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error {
	in := struct {
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	}{cols, rows}
	return p.b.c.tell(ctx, call{method: http.MethodPost, path: p.in("resize"), in: in, repeatable: true})
}
