package rpc

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// Types of messages.
const (
	typeStdout = "stdout"
	typeStderr = "stderr"
	typeExit   = "exit"
	typeError  = "error"
)

// ExecStream runs a command and sends its output as it comes. A client that goes
// away takes the command with it; a server that stops does not.
func (s *service) ExecStream(ctx context.Context, q *sandboxv1.ExecStreamRequest, stream sandboxv1connect.SandboxServiceExecStreamServerStream) error {
	cmd, err := command(q.GetCommand(), q.GetWorkdir(), q.GetTimeout(), -1)
	if err != nil {
		return err
	}
	cmd.MaxOutput = -1 // the client takes it, or the command waits
	c := caller(ctx)
	out := newOutput(stream.Send)
	defer out.close()
	e, err := s.Sandboxes.StartExec(ctx, c, q.GetSessionId(), cmd, client.Output{Stdout: &out.stdout, Stderr: &out.stderr}, "")
	s.recordExec(ctx, c, q.GetSessionId(), q.GetCommand(), e, err)
	cmd.Argv = nil
	callOf(ctx).free(q) // the sandbox has it
	if err != nil {
		text, ok := inAnswer(ctx, err)
		if !ok {
			return status(ctx, err)
		}
		return out.fail(text)
	}
	return s.follow(ctx, e, out, cmd.Dir)
}

// follow waits for the command's end, or for its client's or the server's.
func (s *service) follow(ctx context.Context, e *manager.Exec, out *output, dir string) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.Draining:
			cancel(errStopping)
		case <-out.broken:
			cancel(context.Canceled)
		case <-waiting.Done():
		}
	}()
	res, err := e.Wait(waiting)
	switch {
	case err == nil:
		return out.end(res, dir)
	case errors.Is(context.Cause(waiting), errStopping):
		_ = e.Detach() // it is not its client that goes
		return connect.NewError(connect.CodeUnavailable, errStopping.Error())
	case waiting.Err() != nil:
		kill, done := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer done()
		_ = e.Signal(kill, int(syscall.SIGKILL), true) // else the sandbox does it, after its grace
		e.Abandon()
		return status(ctx, context.Cause(waiting))
	}
	server.LogError(ctx, err)
	return out.fail(server.ProblemOf(doors.GuestError(err)).Detail)
}

// killTime is how long killing a command may take that nobody waits for.
const killTime = 5 * time.Second

var errStopping = errors.New("the server is about to stop")
