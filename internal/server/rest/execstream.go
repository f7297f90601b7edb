package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

func (x *execRoutes) executeStream(ctx context.Context, c sandbox.Caller, in *executeInput) (reply, error) {
	if in.Body.Session != "" {
		return x.streamInSession(ctx, c, in)
	}
	cmd, stdin, err := in.Body.command()
	if err != nil {
		return nil, err
	}
	if cmd.MaxOutput == 0 {
		cmd.MaxOutput = -1
	}
	usual := sandbox.Kill
	if in.Body.Detach.Value {
		usual = sandbox.Keep
	}
	cmd.OnDisconnect = in.Body.onDisconnect(usual)
	once, err := in.once("execute-stream")
	if err != nil {
		return nil, err
	}
	f := newFollower(in.base64(), offsets{})
	f.plain = plainFrames(in.Accept)
	f.atOnce = in.Body.killedAtOnce(f.plain)
	e, err := x.start(ctx, c, in.ID, cmd, f.output(), once)
	if err != nil {
		return nil, err
	}
	feed(e, stdin, !in.Body.OpenStdin.Value)
	return func(w http.ResponseWriter, r *http.Request) { x.follow(w, r, c, in.ID, e, f) }, nil
}

// follow sends what a command does until it has ended or its client is gone.
func (x *execRoutes) follow(w http.ResponseWriter, r *http.Request, c sandbox.Caller, id string, e *manager.Exec, f *follower) {
	ev := openEvents(w)
	defer ev.close()
	f.begin(ev, e.ID())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	done := make(chan struct{})
	var res *sandbox.Result
	var err error
	go func() {
		defer close(done)
		res, err = e.Wait(ctx)
	}()
	switch ev.pulse(ctx, done, x.Draining) {
	case left:
		x.leave(ctx, e, f.atOnce)
		return
	case stopping:
		_ = e.Detach() // it is not its client that goes
		f.fail(ctx, errStopping())
		return
	}
	switch {
	case ctx.Err() != nil:
		x.leave(ctx, e, f.atOnce)
	case err != nil:
		f.fail(ctx, guestError(err))
	case res.Outcome == sandbox.Lost:
		f.finish()
		f.fail(ctx, x.lost(ctx, c, id, res))
	default:
		f.finish()
		f.exit(res)
	}
}

// leave is for a command whose client is gone: it is killed at once, or its
// OnDisconnect counts. A server that stops kills none.
func (x *execRoutes) leave(ctx context.Context, e *manager.Exec, atOnce bool) {
	select {
	case <-x.Draining:
	default:
		if atOnce {
			kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
			defer cancel()
			_ = e.Signal(kill, int(syscall.SIGKILL), true) // else the sandbox does it, after its grace
		}
	}
	e.Abandon()
}

// killTime is how long killing a command may take that nobody waits for.
const killTime = 5 * time.Second

// ExecEnd is how a command ended, without its output.
type ExecEnd struct {
	ExecID    string    `json:"exec_id"`
	ExitCode  *int      `json:"exit_code"`
	Signal    *int      `json:"signal"`
	TimedOut  bool      `json:"timed_out"`
	OOMKilled bool      `json:"oom_killed"`
	Truncated Truncated `json:"truncated"`
	Reason    string    `json:"reason"`
	Duration  Duration  `json:"duration"`
	CPUTime   Duration  `json:"cpu_time"`
	Memory    int64     `json:"peak_memory"`
}

func endOf(r *sandbox.Result) ExecEnd {
	b := resultOf(r)
	return ExecEnd{b.ExecID, b.ExitCode, b.Signal, b.TimedOut, b.OOMKilled, b.Truncated, b.Reason, b.Duration, b.CPUTime, b.Memory}
}

// offsets are how much of each output stream a client has.
type offsets [2]int64

// String is the form of ids of events.
func (o offsets) String() string { return fmt.Sprintf("%d-%d", o[0], o[1]) }

// parseOffsets reads the id of an event.
func parseOffsets(field, s string) (o offsets, err error) {
	a, b, ok := strings.Cut(s, "-")
	if ok {
		o[0], err = parseOffset(field, a)
		if err == nil {
			o[1], err = parseOffset(field, b)
		}
		return o, err
	}
	return o, badOffset(field, s)
}

func parseOffset(field, s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, badOffset(field, s)
	}
	return int64(n), nil
}

func badOffset(field, s string) error {
	return &FormProblem{Detail: []*FieldError{{
		Type: "value_error", Loc: []any{where(field), field}, Msg: "it must be an offset, or the id of an event of this stream", Input: short(s),
	}}}
}

func where(field string) string {
	if field == lastEventID {
		return "header"
	}
	return "query"
}

const lastEventID = "Last-Event-ID"

// follower makes events of a command's output. The goroutine that delivers the
// output uses it, and after the command's end the handler.
type follower struct {
	exact bool
	plain bool // frames of the process API
	// atOnce: the command goes with its client.
	atOnce bool
	at     offsets // up to which events were sent
	tails  [2]wording.Chars
	ready  chan struct{}
	ev     *events // from ready on
}

func newFollower(exact bool, at offsets) *follower {
	return &follower{exact: exact, at: at, ready: make(chan struct{})}
}

func (f *follower) output() client.Output {
	return client.Output{Stdout: followed{f, 0}, Stderr: followed{f, 1}}
}

// begin says which command it is and lets output through. Whether the client is
// still there shows pulse.
func (f *follower) begin(ev *events, execID string) {
	f.ev = ev
	if !f.plain {
		_ = ev.send("start", "", map[string]string{"exec_id": execID})
	}
	close(f.ready)
}

// exit sends the result, as the last event.
func (f *follower) exit(res *sandbox.Result) {
	if f.plain {
		code := res.SignalCode()
		_ = f.ev.frame(plainFrame{Type: "exit", ExitCode: &code})
		return
	}
	_ = f.ev.send("exit", f.at.String(), endOf(res)) // a client that is gone asks for the result
}

// fail sends an error, as the last event.
func (f *follower) fail(ctx context.Context, err error) {
	if f.plain {
		text := server.Explain(ctx, err).Detail
		_ = f.ev.frame(plainFrame{Type: "error", Data: &text})
		return
	}
	f.ev.fail(ctx, err)
}

var streamNames = [2]string{"stdout", "stderr"}

type followed struct {
	f      *follower
	stream int
}

// maxEvent bounds the output in one event.
const maxEvent = 64 << 10

// Write implements io.Writer. It waits for a slow client, and the command with it.
func (w followed) Write(p []byte) (int, error) {
	f := w.f
	<-f.ready
	n := len(p)
	if !f.exact {
		p = f.tails[w.stream].Whole(p)
	}
	for len(p) > 0 {
		cut := min(len(p), maxEvent)
		if cut < len(p) && !f.exact {
			cut -= splitLen(p[:cut])
		}
		if err := f.send(w.stream, p[:cut]); err != nil {
			return n, err
		}
		p = p[cut:]
	}
	return n, nil
}

// splitLen is how many bytes at the end of a text may be the begin of a character.
var splitLen = wording.SplitLen

type outputEvent struct {
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

type exactOutputEvent struct {
	Offset int64  `json:"offset"`
	Data   []byte `json:"data_base64"`
}

func (f *follower) send(stream int, p []byte) error {
	offset := f.at[stream]
	f.at[stream] += int64(len(p))
	if f.plain {
		text := string(p)
		return f.ev.frame(plainFrame{Type: streamNames[stream], Data: &text})
	}
	if f.exact {
		return f.ev.send(streamNames[stream], f.at.String(), exactOutputEvent{offset, p})
	}
	return f.ev.send(streamNames[stream], f.at.String(), outputEvent{offset, string(p)})
}

// finish sends characters that stayed in parts.
func (f *follower) finish() {
	for i := range f.tails {
		if tail := f.tails[i].Rest(); len(tail) > 0 {
			_ = f.send(i, tail) // a client that is gone reads it later
		}
	}
}

// offsetProblem is the answer to an offset that is not there, with the first one
// that is.
func offsetProblem(first, end int64) error {
	p := server.NewProblem(server.CodeOutOfRange, fmt.Sprintf("there is no output at this offset: it begins at %d and ends at %d", first, end))
	p.Field, p.Allowed = "offset", fmt.Sprintf("%d to %d", first, end)
	return p
}
