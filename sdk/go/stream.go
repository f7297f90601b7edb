package agentbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// EventKind is what an event of a command tells.
type EventKind string

// Kinds of events of a command.
const (
	Started EventKind = "start"  // ExecID is known
	Stdout  EventKind = "stdout" // Data is there
	Stderr  EventKind = "stderr" // Data is there
	Exited  EventKind = "exit"   // Result is there; it is the last one
)

// Event is something that a command did.
type Event struct {
	Kind   EventKind
	ExecID string
	Data   []byte
	// At is how much of each stream there was up to here: where to go on after this event.
	At     Position
	Result *Result // without output
}

// Position is how much of the output of a command somebody has, in bytes of each stream.
type Position struct{ Stdout, Stderr int64 }

// String is the form that servers take.
func (p Position) String() string { return fmt.Sprintf("%d-%d", p.Stdout, p.Stderr) }

const (
	// backWithin is how long a server that went away may take to come back.
	backWithin = 30 * time.Second
	// backEvery is how often it is tried.
	backEvery = 200 * time.Millisecond
	// killWithin is how long the end of a command may take that nobody follows any more.
	killWithin = 5 * time.Second
)

// Stream runs a command and goes through its events while it runs. When the server is
// started anew meanwhile, it goes on where it was. Who leaves the loop, or ends ctx,
// ends the command, unless its OnDisconnect is keep.
func (b *Box) Stream(ctx context.Context, cmd Command) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := cmd.check(); err != nil {
			yield(Event{}, err)
			return
		}
		q := call{method: http.MethodPost, path: b.in("execute", "stream"), query: exact, in: execution{Command: cmd}}
		f := &follower{b: b, yield: yield, leash: cmd.OnDisconnect != "keep", inSession: cmd.Session != ""}
		f.run(ctx, cmd.once(q))
	}
}

// Run is Stream with the output written to two writers; nil ones take nothing. The result
// has no output.
func (b *Box) Run(ctx context.Context, cmd Command, stdout, stderr io.Writer) (*Result, error) {
	return deliver(b.Stream(ctx, cmd), stdout, stderr)
}

// deliver writes the output of a command and returns how it ended.
func deliver(events iter.Seq2[Event, error], stdout, stderr io.Writer) (*Result, error) {
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		to := map[EventKind]io.Writer{Stdout: stdout, Stderr: stderr}[e.Kind]
		if to != nil {
			_, err = to.Write(e.Data)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("write the output: %w", err)
		case e.Kind == Exited:
			return e.Result, nil
		}
	}
	return nil, errCut
}

// follower goes through the events of one command.
type follower struct {
	b     *Box
	yield func(Event, error) bool
	// leash: a command that is not followed any more is ended.
	leash bool
	// inSession: it is its shell's command, which can't be found again.
	inSession bool
	execID    string
	at        Position
	told      bool // Started was handed on
	left      bool // the caller has left the loop
}

// run follows the command that a request starts or finds.
func (f *follower) run(ctx context.Context, q call) {
	done, err := f.follow(ctx, q)
	var end time.Time
	for !done && f.canResume(ctx, err) {
		if end.IsZero() {
			end = time.Now().Add(backWithin)
		}
		before := f.at
		done, err = f.follow(ctx, f.b.outputOf(f.execID, f.at))
		if f.at != before {
			end = time.Time{}
		}
		if !done && !end.IsZero() && time.Now().After(end) {
			break
		}
		if !done {
			pause(ctx, backEvery)
		}
	}
	if !done && f.leash && f.execID != "" && (f.left || ctx.Err() != nil) {
		f.kill(ctx)
	}
	if !done && !f.left {
		f.yield(Event{}, err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// canResume reports whether a command that is known may be found again.
func (f *follower) canResume(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !f.left && !f.inSession && f.execID != "" && errors.Is(err, ErrUnavailable)
}

// kill ends the command, as far as that can be done.
func (f *follower) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
	defer cancel()
	_ = f.b.Process(f.execID).signal(ctx, "KILL", true) // the server ends it otherwise, a little later
}

// follow hands on events until the last one; done says that it came.
func (f *follower) follow(ctx context.Context, q call) (done bool, err error) {
	for e, err := range f.b.c.events(ctx, q) {
		if err != nil {
			return false, err
		}
		event, err := f.read(e)
		if err != nil {
			return false, err
		}
		if event.Kind == Started && f.told {
			continue
		}
		f.told = true
		if !f.yield(event, nil) {
			f.left = true
			return event.Kind == Exited, nil
		}
		if event.Kind == Exited {
			return true, nil
		}
	}
	return false, f.b.c.cut(errCut)
}

// read turns what the server sent into an event.
func (f *follower) read(e sse) (Event, error) {
	event := Event{Kind: EventKind(e.name)}
	var output struct {
		Offset int64  `json:"offset"`
		Data   []byte `json:"data_base64"`
		ExecID string `json:"exec_id"`
	}
	var err error
	switch event.Kind {
	case Started, Stdout, Stderr:
		err = json.Unmarshal(e.data, &output)
	case Exited:
		event.Result = &Result{}
		err = json.Unmarshal(e.data, event.Result)
	case "error":
		return event, eventError(e.data)
	}
	if err != nil {
		return event, fmt.Errorf("read an event of the server: %w", err)
	}
	end := output.Offset + int64(len(output.Data))
	switch event.Kind {
	case Started:
		f.execID = output.ExecID
	case Stdout:
		f.at.Stdout = end
	case Stderr:
		f.at.Stderr = end
	}
	event.ExecID, event.Data, event.At = f.execID, output.Data, f.at
	return event, nil
}

// outputOf asks for the events of a command behind a position.
func (b *Box) outputOf(execID string, from Position) call {
	query := url.Values{"encoding": {"base64"}, "offset": {from.String()}}
	return call{method: http.MethodGet, path: b.in("execs", execID, "output"), query: query}
}
