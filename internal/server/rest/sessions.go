package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/shell"
)

// sessionRoutes are the routes about shell sessions, and what execute does with
// them.
type sessionRoutes struct {
	*API
	m      Files
	engine *shell.Engine
}

func newSessions(a *API, m Files) *sessionRoutes { return &sessionRoutes{a, m, shell.New()} }

// registerSessions adds the routes about shell sessions.
func registerSessions(a *API, s *sessionRoutes) {
	tags := []string{"Sessions"}
	route(a, huma.Operation{
		OperationID: "create-session", Method: http.MethodPost, Path: "/sandboxes/{id}/sessions", Summary: "Begin a shell session", Tags: tags,
		Description: "Commands that are executed in it share a shell: directory, variables and functions last.", DefaultStatus: http.StatusCreated,
	}, server.Route{}, s.create)
	route(a, huma.Operation{
		OperationID: "list-sessions", Method: http.MethodGet, Path: "/sandboxes/{id}/sessions", Summary: "List the shell sessions, oldest first", Tags: tags,
	}, server.Route{}, s.list)
	route(a, huma.Operation{
		OperationID: "remove-session", Method: http.MethodDelete, Path: "/sandboxes/{id}/sessions/{name}", Summary: "End a shell session", Tags: tags,
		Description: "With all that runs in it.", DefaultStatus: http.StatusNoContent,
	}, server.Route{}, s.remove)
}

// ShellSession is a shell session.
type ShellSession struct {
	Name    string    `json:"name"`
	ExecID  string    `json:"exec_id" doc:"The command that its shell is."`
	Started time.Time `json:"started_at"`
}

func sessionOf(s shell.Session) ShellSession { return ShellSession{s.Name, s.ExecID, s.Started.UTC()} }

type (
	createSessionInput struct {
		SandboxID
		Repeatable
		Body struct {
			Name string `json:"name" minLength:"1" maxLength:"128" doc:"Your name for it: letters, digits, dots, dashes and underscores."`
		}
	}
	sessionOutput     struct{ Body ShellSession }
	listSessionsInput struct {
		SandboxID
		Page
	}
	sessionsOutput struct{ Body List[ShellSession] }
	sessionInput   struct {
		SandboxID
		Name string `path:"name" maxLength:"128"`
	}
)

func (s *sessionRoutes) create(ctx context.Context, c sandbox.Caller, in *createSessionInput) (*sessionOutput, error) {
	return repeatIn(ctx, s.API, c, in.ID, in.Key, "create-session", in.Body, func(ctx context.Context, try sandbox.Try) (*sessionOutput, error) {
		return s.begin(ctx, c, in, try.Made)
	})
}

func (s *sessionRoutes) begin(ctx context.Context, c sandbox.Caller, in *createSessionInput, made string) (*sessionOutput, error) {
	l, err := s.m.Acquire(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	session, err := s.engine.Create(ctx, l.Session(), l.Sandbox().UID, in.Body.Name, made)
	err = guestError(err)
	s.recordOn(ctx, c, audit.Exec, l.Sandbox().UID, err, map[string]string{"op": "session_create", "session": in.Body.Name})
	if err != nil {
		return nil, err
	}
	return &sessionOutput{sessionOf(session)}, nil
}

func (s *sessionRoutes) list(ctx context.Context, c sandbox.Caller, in *listSessionsInput) (*sessionsOutput, error) {
	l, err := s.m.Acquire(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	all, err := s.engine.List(ctx, l.Session())
	if err != nil {
		return nil, guestError(err)
	}
	page, next, err := pageOf(all, in.Page, func(s shell.Session) string { return s.Name })
	if err != nil {
		return nil, err
	}
	var items []ShellSession
	for _, one := range page {
		items = append(items, sessionOf(one))
	}
	return &sessionsOutput{list(items, next)}, nil
}

func (s *sessionRoutes) remove(ctx context.Context, c sandbox.Caller, in *sessionInput) (*struct{}, error) {
	l, err := s.m.Acquire(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	err = guestError(s.engine.Remove(ctx, l.Session(), in.Name))
	s.recordOn(ctx, c, audit.Exec, l.Sandbox().UID, err, map[string]string{"op": "session_remove", "session": in.Name})
	return nil, err
}

// sessionCommand is what a session runs; what a session can't change for one
// command is refused.
func sessionCommand(q *Command) (shell.Command, error) {
	if err := sandbox.CheckID("session", q.Session); err != nil {
		return shell.Command{}, err
	}
	cmd, _, err := q.command()
	if err != nil {
		return shell.Command{}, err
	}
	for field, set := range map[string]bool{
		"workdir": q.Workdir != "", "env": len(q.Env) > 0, "user": q.User != "", "stdin": cmd.Stdin, "tty": q.TTY.Value,
		"open_stdin": q.OpenStdin.Value, "on_disconnect": q.Disconnect != "" && q.Disconnect != killNow,
		"command": len(cmd.Argv) > 0,
	} {
		if set {
			return shell.Command{}, &sandbox.InvalidError{Field: field, Allowed: "in a session only a command line with timeout and max_output, and on_disconnect kill_now"}
		}
	}
	return shell.Command{Line: cmd.Shell, Timeout: cmd.Timeout, MaxOutput: cmd.MaxOutput}, nil
}

// running is a command on its way in a session.
type running struct {
	done   chan struct{}
	cancel context.CancelFunc
	res    *sandbox.Result // set before done is closed
	err    error
}

// start runs a command in a session, which goes on when ctx ends.
func (s *sessionRoutes) start(ctx context.Context, c sandbox.Caller, id, name string, cmd shell.Command) (*running, error) {
	l, err := s.m.Acquire(ctx, c, id)
	if err != nil {
		return nil, err
	}
	r := &running{done: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.done)
		defer l.Release()
		r.res, r.err = s.engine.Run(ctx, l.Session(), l.Sandbox().UID, name, cmd)
		r.err = guestError(r.err)
		s.recordOn(ctx, c, audit.Exec, l.Sandbox().UID, r.err, map[string]string{"session": name, "command": cmd.Line})
	}()
	return r, nil
}

// executeInSession waits for a command. It runs on when its client goes away.
func (x *execRoutes) executeInSession(ctx context.Context, c sandbox.Caller, in *executeInput) (*executeOutput, error) {
	return repeatIn(ctx, x.API, c, in.ID, in.Key, "execute "+in.Encoding.Encoding, in.Body, func(ctx context.Context, try sandbox.Try) (*executeOutput, error) {
		return x.runInSession(ctx, c, in, try.Begin)
	})
}

func (x *execRoutes) runInSession(ctx context.Context, c sandbox.Caller, in *executeInput, begin func() error) (*executeOutput, error) {
	cmd, err := sessionCommand(&in.Body)
	if err != nil {
		return nil, err
	}
	if in.Body.Detach.Value {
		return nil, &sandbox.InvalidError{Field: "detach", Value: "true", Allowed: "in a session only with execute/stream"}
	}
	merged := &capture{}
	cmd.Out, cmd.Begin = merged.output(), begin
	r, err := x.sessions.start(ctx, c, in.ID, in.Body.Session, cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if in.Body.killedAtOnce(false) {
			r.cancel()
		}
		return nil, context.Cause(ctx)
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.res.Outcome == sandbox.Lost {
		return nil, x.lost(ctx, c, in.ID, r.res)
	}
	body := resultOf(r.res)
	merged.fill(&body, in.base64())
	return &executeOutput{http.StatusOK, body}, nil
}

// streamInSession follows a command. Its events have the offsets of the shell's
// output, by which it can be followed again. It is killed some time after its
// client is gone, unless it is to go on.
func (x *execRoutes) streamInSession(ctx context.Context, c sandbox.Caller, in *executeInput) (reply, error) {
	cmd, err := sessionCommand(&in.Body)
	if err != nil {
		return nil, err
	}
	if in.Key != "" {
		return nil, sandbox.Refuse(errdefs.ErrNotImplemented, "a stream of a session can't be repeated: send it without Idempotency-Key, or wait for the command with execute")
	}
	if cmd.MaxOutput == 0 {
		cmd.MaxOutput = -1
	}
	f := newFollower(in.base64(), offsets{})
	f.plain = plainFrames(in.Accept)
	f.atOnce = in.Body.killedAtOnce(f.plain)
	cmd.Out, cmd.Offsets = f.output(), func(stdout, stderr int64) { f.at = offsets{stdout, stderr} }
	r, err := x.sessions.start(ctx, c, in.ID, in.Body.Session, cmd)
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, req *http.Request) { x.followSession(w, req, c, in, r, f) }, nil
}

func (x *execRoutes) followSession(w http.ResponseWriter, r *http.Request, c sandbox.Caller, in *executeInput, run *running, f *follower) {
	ev := openEvents(w)
	defer ev.close()
	f.begin(ev, shell.ExecID(in.Body.Session))
	switch ev.pulse(r.Context(), run.done, x.Draining) {
	case left:
		switch {
		case f.atOnce:
			run.cancel()
		case !in.Body.Detach.Value:
			time.AfterFunc(sandbox.DisconnectGrace, run.cancel)
		}
		return
	case stopping:
		f.fail(r.Context(), errStopping())
		return
	}
	switch {
	case run.err != nil:
		f.fail(r.Context(), run.err)
	case run.res.Outcome == sandbox.Lost:
		f.finish()
		f.fail(r.Context(), x.lost(r.Context(), c, in.ID, run.res))
	default:
		f.finish()
		f.exit(run.res)
	}
}

// tail follows the command of a session again, from offsets of its shell's output
// to the command's end.
func (x *execRoutes) tail(ctx context.Context, c sandbox.Caller, in *outputInput, at offsets, f *follower) (reply, error) {
	out := f.output()
	if !in.wants(0) {
		out.Stdout = nil
	}
	if !in.wants(1) {
		out.Stderr = nil
	}
	t := shell.NewTail(out)
	e, err := x.m.Attach(ctx, c, in.ID, in.Exec, at[0], at[1], t.Output())
	if err != nil {
		return nil, guestError(err)
	}
	return func(w http.ResponseWriter, r *http.Request) { x.followTail(w, r, e, t, f) }, nil
}

func (x *execRoutes) followTail(w http.ResponseWriter, r *http.Request, e *manager.Exec, t *shell.Tail, f *follower) {
	ev := openEvents(w)
	defer ev.close()
	defer e.Abandon()
	f.begin(ev, e.ID())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	shellEnded, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shellEnded)
		_, _ = e.Wait(ctx) // the shell's result is not the command's
	}()
	ended := false
	go func() {
		defer close(done)
		ended = t.Wait(shellEnded)
	}()
	switch ev.pulse(ctx, done, x.Draining) {
	case left:
		return
	case stopping:
		f.fail(ctx, errStopping())
		return
	}
	f.finish()
	if !ended {
		f.fail(ctx, sandbox.Refuse(errdefs.ErrFailedPrecondition, "the session has ended"))
		return
	}
	f.exit(t.Result(e.ID()))
}
