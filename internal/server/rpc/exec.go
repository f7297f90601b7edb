package rpc

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect/v2"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

// Defaults of commands.
const (
	defaultTimeout = 30 * time.Second
	defaultWorkdir = sandbox.WorkspacePath
)

// command is what the core takes. A timeout of 0 is byDefault.
func command(line, workdir string, timeout int32, byDefault time.Duration) (sandbox.Command, error) {
	cmd := sandbox.Command{Argv: []string{"/bin/sh", "-c", line}, Dir: workdir, Timeout: time.Duration(timeout) * time.Second}
	switch {
	case line == "":
		return cmd, connect.NewError(connect.CodeInvalidArgument, wording.MissingCommand)
	case timeout < 0:
		return cmd, connect.NewError(connect.CodeInvalidArgument, "timeout must not be negative")
	case timeout == 0:
		cmd.Timeout = byDefault
	}
	if cmd.Dir == "" {
		cmd.Dir = defaultWorkdir
	}
	return cmd, nil
}

// Exec runs a command to its end. When its client goes away it runs on, as the
// waiting calls of other doors do.
func (s *service) Exec(ctx context.Context, q *sandboxv1.ExecRequest) (*sandboxv1.ExecResponse, error) {
	cmd, err := command(q.GetCommand(), q.GetWorkdir(), q.GetTimeout(), min(defaultTimeout, cmp.Or(s.Session.MaxExec, defaultTimeout)))
	if err != nil {
		return nil, err
	}
	cmd.OnDisconnect = sandbox.Keep
	c := caller(ctx)
	e, err := s.Sandboxes.StartExec(ctx, c, q.GetSessionId(), cmd, client.Output{}, "")
	s.recordExec(ctx, c, q.GetSessionId(), q.GetCommand(), e, err)
	cmd.Argv = nil
	callOf(ctx).free(q) // the sandbox has it
	if err != nil {
		return failedExec(ctx, err)
	}
	return waited(ctx, e, cmd.Dir)
}

// waited answers a command when it has ended. It goes on without its client.
func waited(ctx context.Context, e *manager.Exec, dir string) (*sandboxv1.ExecResponse, error) {
	res, err := e.Wait(ctx)
	if err != nil {
		_ = e.Detach() // its OnDisconnect says the same, should this not arrive
		return failedExec(ctx, err)
	}
	return answerOf(res, dir), nil
}

// recordExec records a command that was begun, or why it was not.
func (s *service) recordExec(ctx context.Context, c sandbox.Caller, id, line string, e *manager.Exec, err error) {
	details := map[string]string{"command": line}
	if err == nil {
		details["exec_id"] = e.ID()
	}
	doors.Record(ctx, s.Audit, c, audit.Exec, s.uid(ctx, c, id), doors.GuestError(err), details)
}

// uid is the primary key of a sandbox; empty: there is none.
func (s *service) uid(ctx context.Context, c sandbox.Caller, id string) string {
	sb, _ := s.Sandboxes.Get(context.WithoutCancel(ctx), c, id) // the error is that of the call itself, too
	return sb.UID
}

// failedExec answers a command that was not run.
func failedExec(ctx context.Context, err error) (*sandboxv1.ExecResponse, error) {
	text, ok := inAnswer(ctx, err)
	if !ok {
		return nil, status(ctx, err)
	}
	return &sandboxv1.ExecResponse{ExitCode: -1, Stderr: text, TimedOut: text == noAnswer}, nil
}

// answerOf is a result as the door tells it.
func answerOf(r *sandbox.Result, dir string) *sandboxv1.ExecResponse {
	a := wording.AnswerOf(r, dir)
	return &sandboxv1.ExecResponse{
		ExitCode: a.ExitCode, Stdout: wording.Text(a.Stdout) + a.StdoutEnd, Stderr: wording.Text(a.Stderr) + a.StderrEnd, TimedOut: a.TimedOut,
		Truncated: r.StdoutTruncated || r.StderrTruncated,
	}
}
