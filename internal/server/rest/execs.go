package rest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/shell"
)

// execReader looks at commands.
type execReader interface {
	Execs(ctx context.Context, c sandbox.Caller, id string) ([]client.ExecInfo, error)
	ExecInfo(ctx context.Context, c sandbox.Caller, id, execID string, output bool) (client.ExecInfo, error)
	WaitExec(ctx context.Context, c sandbox.Caller, id, execID string, timeout time.Duration, output bool) (client.ExecInfo, error)
	Output(ctx context.Context, c sandbox.Caller, id, execID string, s manager.Stream, offset int64, follow bool, w io.Writer) error
}

// execControl acts on commands that run.
type execControl interface {
	WriteExec(ctx context.Context, c sandbox.Caller, id, execID string, r io.Reader, eof bool) error
	SignalExec(ctx context.Context, c sandbox.Caller, id, execID string, signal int, tree bool) error
	ResizeExec(ctx context.Context, c sandbox.Caller, id, execID string, cols, rows uint16) error
}

// InExec is the part of a path that names a command.
type InExec struct {
	SandboxID
	Exec string `path:"exec" maxLength:"64" doc:"The command, by its exec_id."`
}

// Exec is a command that runs or ended not long ago.
type Exec struct {
	ExecID  string      `json:"exec_id"`
	State   string      `json:"state" enum:"queued,running,ended" doc:"queued: as many run as may."`
	Pid     int         `json:"pid" doc:"Of its first process, in the sandbox; 0 while it is queued."`
	Command []string    `json:"command" nullable:"false" doc:"The program and its arguments."`
	User    string      `json:"user"`
	TTY     bool        `json:"tty"`
	Started time.Time   `json:"started_at"`
	Stdout  Kept        `json:"stdout" doc:"Which output is still there."`
	Stderr  Kept        `json:"stderr"`
	Result  *ExecResult `json:"result" doc:"null: it has not ended. Lists leave its output out."`
}

// TransformSchema documents that there may be no result.
func (Exec) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	result := *s.Properties["result"]
	s.Properties["result"] = &huma.Schema{OneOf: []*huma.Schema{{Ref: result.Ref}, {Type: "null"}}, Description: result.Description}
	return s
}

// Kept is the part of an output stream that is still there, in offsets.
type Kept struct {
	First int64 `json:"first"`
	End   int64 `json:"end"`
}

func execOf(i *client.ExecInfo) Exec {
	e := Exec{
		ExecID: i.ID, State: "running", Pid: i.Pid, Command: append([]string{}, i.Argv...), User: i.User, TTY: i.TTY, Started: i.Started.UTC(),
		Stdout: Kept{i.StdoutFirst, i.StdoutEnd}, Stderr: Kept{i.StderrFirst, i.StderrEnd},
	}
	switch {
	case i.Result.Outcome != sandbox.Running:
		r := resultOf(&i.Result)
		r.ExecID = i.ID
		e.State, e.Result = "ended", &r
	case i.Pid == 0:
		e.State = "queued"
	}
	return e
}

func (x *execRoutes) registerExecs(tags []string) {
	route(x.API, huma.Operation{
		OperationID: "list-execs", Method: http.MethodGet, Path: "/sandboxes/{id}/execs", Summary: "List the commands of a sandbox, oldest first", Tags: tags,
		Description: "Those that run and those that ended in the last hour.",
	}, server.Route{}, x.listExecs)
	route(x.API, huma.Operation{
		OperationID: "get-exec", Method: http.MethodGet, Path: "/sandboxes/{id}/execs/{exec}", Summary: "Look at a command and its result", Tags: tags,
	}, server.Route{}, x.getExec)
	routeReply(x.API, huma.Operation{
		OperationID: "read-output", Method: http.MethodGet, Path: "/sandboxes/{id}/execs/{exec}/output", Summary: "Read the output of a command", Tags: tags,
		Description: "As bytes or, with Accept: text/event-stream, as the events of execute/stream; these always go on until the command's end. Last-Event-ID counts before offset. Output that is not there any more is the error out_of_range; X-First-Offset has the first offset that is.",
		Responses:   answers("200", "The output.", typeBytes, typeEvents),
	}, server.Route{Stream: true}, x.output)
	route(x.API, huma.Operation{
		OperationID: "write-stdin", Method: http.MethodPost, Path: "/sandboxes/{id}/execs/{exec}/stdin", Summary: "Write to the input of a command", Tags: tags,
		RequestBody: takes("The bytes.", typeBytes), DefaultStatus: http.StatusNoContent,
	}, server.Route{Stream: true}, x.stdin)
	route(x.API, huma.Operation{
		OperationID: "signal-exec", Method: http.MethodPost, Path: "/sandboxes/{id}/execs/{exec}/signal", Summary: "Send a signal to a command", Tags: tags,
		DefaultStatus: http.StatusNoContent,
	}, server.Route{}, x.signal)
	route(x.API, huma.Operation{
		OperationID: "resize-exec", Method: http.MethodPost, Path: "/sandboxes/{id}/execs/{exec}/resize", Summary: "Set the size of a command's terminal", Tags: tags,
		DefaultStatus: http.StatusNoContent,
	}, server.Route{}, x.resize)
	route(x.API, huma.Operation{
		OperationID: "wait-exec", Method: http.MethodPost, Path: "/sandboxes/{id}/execs/{exec}/wait", Summary: "Wait for a command's end", Tags: tags,
		Description: "After the timeout the answer says that the command runs.",
	}, server.Route{}, x.wait)
}

type (
	listExecsInput struct {
		SandboxID
		Page
	}
	execsOutput  struct{ Body List[Exec] }
	getExecInput struct {
		InExec
		Encoding
	}
	execOutput struct{ Body Exec }
)

func (x *execRoutes) listExecs(ctx context.Context, c sandbox.Caller, in *listExecsInput) (*execsOutput, error) {
	all, err := x.m.Execs(ctx, c, in.ID)
	if err != nil {
		return nil, guestError(err)
	}
	page, next, err := pageOf(all, in.Page, func(i client.ExecInfo) string { return i.ID })
	if err != nil {
		return nil, err
	}
	var items []Exec
	for i := range page {
		items = append(items, execOf(&page[i]))
	}
	return &execsOutput{list(items, next)}, nil
}

func (x *execRoutes) getExec(ctx context.Context, c sandbox.Caller, in *getExecInput) (*execOutput, error) {
	info, err := x.m.ExecInfo(ctx, c, in.ID, in.Exec, true)
	return described(&info, err, in.base64())
}

func described(info *client.ExecInfo, err error, exact bool) (*execOutput, error) {
	if err != nil {
		return nil, guestError(err)
	}
	e := execOf(info)
	if e.Result != nil {
		e.Result.fillKept(&info.Result, exact)
	}
	return &execOutput{e}, nil
}

type waitInput struct {
	InExec
	Encoding
	Timeout patience `query:"timeout" doc:"How long to wait; 0: only look. Default: until it has ended."`
}

// patience is a Duration that tells whether the client has named it.
type patience struct {
	Duration
	named bool
}

// UnmarshalText reads a parameter.
func (p *patience) UnmarshalText(text []byte) error {
	p.named = true
	return p.Duration.UnmarshalText(text)
}

// limit is for WaitExec, for which 0 is without end.
func (p *patience) limit() time.Duration {
	if p.named {
		return max(p.Value, time.Nanosecond)
	}
	return 0
}

func (x *execRoutes) wait(ctx context.Context, c sandbox.Caller, in *waitInput) (*execOutput, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-x.Draining:
			cancel(errStopping())
		case <-ctx.Done():
		}
	}()
	info, err := x.m.WaitExec(ctx, c, in.ID, in.Exec, in.Timeout.limit(), true)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return described(&info, err, in.base64())
}

type stdinInput struct {
	InExec
	Content
	EOF Bool `query:"eof" doc:"Then end the input."`
}

func (x *execRoutes) stdin(ctx context.Context, c sandbox.Caller, in *stdinInput) (*struct{}, error) {
	return nil, guestError(x.m.WriteExec(ctx, c, in.ID, in.Exec, in.request.Body, in.EOF.Value))
}

type signalInput struct {
	InExec
	Body struct {
		Signal Signal `json:"signal"`
		Tree   Bool   `json:"tree,omitempty" doc:"To all that the command started, too."`
	}
}

func (x *execRoutes) signal(ctx context.Context, c sandbox.Caller, in *signalInput) (*struct{}, error) {
	n, err := in.Body.Signal.number("signal")
	if err != nil {
		return nil, err
	}
	return nil, guestError(x.m.SignalExec(ctx, c, in.ID, in.Exec, n, in.Body.Tree.Value))
}

type resizeInput struct {
	InExec
	Body struct {
		Cols Int `json:"cols" minimum:"1" maximum:"65535"`
		Rows Int `json:"rows" minimum:"1" maximum:"65535"`
	}
}

func (x *execRoutes) resize(ctx context.Context, c sandbox.Caller, in *resizeInput) (*struct{}, error) {
	return nil, guestError(x.m.ResizeExec(ctx, c, in.ID, in.Exec, uint16(in.Body.Cols.Value), uint16(in.Body.Rows.Value)))
}

type outputInput struct {
	InExec
	Encoding
	Stream string `query:"stream" enum:"stdout,stderr,both" default:"both" doc:"Bytes of both come in the order in which the sandbox sends them."`
	Offset string `query:"offset" maxLength:"64" doc:"Where to begin: an offset in the stream, or the id of an event for both."`
	Follow Bool   `query:"follow" doc:"Bytes go on until the command's end."`
	Last   string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that came."`
	Accept string `header:"Accept"`
}

func (x *execRoutes) output(ctx context.Context, c sandbox.Caller, in *outputInput) (reply, error) {
	at, err := in.begin()
	if err != nil {
		return nil, err
	}
	info, err := x.m.ExecInfo(ctx, c, in.ID, in.Exec, false)
	if err != nil {
		return nil, guestError(err)
	}
	kept := [2]Kept{{info.StdoutFirst, info.StdoutEnd}, {info.StderrFirst, info.StderrEnd}}
	for i := range at {
		if !in.wants(i) {
			at[i] = kept[i].End
		} else if at[i] < kept[i].First || at[i] > kept[i].End {
			return notThere(kept[i]), nil
		}
	}
	if strings.Contains(in.Accept, typeEvents) {
		return x.outputEvents(ctx, c, in, at)
	}
	return func(w http.ResponseWriter, r *http.Request) { x.outputBytes(w, r, c, in, at, kept) }, nil
}

func (in *outputInput) wants(stream int) bool {
	return in.Stream == "both" || in.Stream == streamNames[stream]
}

// begin is where the client wants to go on.
func (in *outputInput) begin() (at offsets, err error) {
	switch {
	case in.Last != "":
		return parseOffsets(lastEventID, in.Last)
	case in.Offset == "":
		return at, nil
	case strings.Contains(in.Offset, "-"):
		return parseOffsets("offset", in.Offset)
	}
	n, err := parseOffset("offset", in.Offset)
	switch {
	case err != nil:
		return at, err
	case in.Stream == "both" && n != 0:
		return at, &sandbox.InvalidError{Field: "offset", Value: in.Offset, Allowed: "the offsets of both streams, such as 120-45, or one of them with stream"}
	case in.wants(0):
		at[0] = n
	default:
		at[1] = n
	}
	return at, nil
}

func notThere(k Kept) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-First-Offset", itoa(k.First))
		server.WriteError(w, r, offsetProblem(k.First, k.End))
	}
}

func (x *execRoutes) outputEvents(ctx context.Context, c sandbox.Caller, in *outputInput, at offsets) (reply, error) {
	f := newFollower(in.base64(), at)
	f.plain = plainFrames(in.Accept)
	if shell.IsSession(in.Exec) {
		return x.tail(ctx, c, in, at, f)
	}
	out := f.output()
	if !in.wants(0) {
		out.Stdout = io.Discard
	}
	if !in.wants(1) {
		out.Stderr = io.Discard
	}
	e, err := x.m.Attach(ctx, c, in.ID, in.Exec, at[0], at[1], out)
	if err != nil {
		return nil, guestError(err)
	}
	return func(w http.ResponseWriter, r *http.Request) { x.follow(w, r, c, in.ID, e, f) }, nil
}

// outputBytes writes bytes: first what is there of stdout, then of stderr, and
// if they are followed as they come.
func (x *execRoutes) outputBytes(w http.ResponseWriter, r *http.Request, c sandbox.Caller, in *outputInput, at offsets, kept [2]Kept) {
	w.Header().Set("Content-Type", typeBytes)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out := newGate(w, in.Follow.Value, cancel)
	defer out.close()
	var err error
	if in.Follow.Value {
		err = x.followBytes(ctx, cancel, c, in, at, out)
	} else {
		for i := range at {
			if in.wants(i) && err == nil && at[i] < kept[i].End {
				err = x.m.Output(ctx, c, in.ID, in.Exec, manager.Stream(i), at[i], false, out)
			}
		}
	}
	out.finish(r, guestError(err))
}

func (x *execRoutes) followBytes(ctx context.Context, cancel context.CancelCauseFunc, c sandbox.Caller, in *outputInput, at offsets, w io.Writer) error {
	out := client.Output{Stdout: io.Discard, Stderr: io.Discard}
	if in.wants(0) {
		out.Stdout = w
	}
	if in.wants(1) {
		out.Stderr = w
	}
	e, err := x.m.Attach(ctx, c, in.ID, in.Exec, at[0], at[1], out)
	if err != nil {
		return err
	}
	defer e.Abandon()
	go func() {
		select {
		case <-x.Draining:
			cancel(errStopping())
		case <-ctx.Done():
		}
	}()
	_, err = e.Wait(ctx)
	return err
}
