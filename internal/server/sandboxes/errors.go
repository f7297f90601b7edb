package sandboxes

import (
	"context"
	"errors"
	"net/http"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// writeError answers with an error: the form of a request has its own.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var form *doors.FormProblem
	if errors.As(err, &form) {
		server.WriteJSON(w, form.GetStatus(), form)
		return
	}
	server.WriteError(w, r, err)
}

// failed is the error of something that agentbox could not do, in the contract's
// words; other errors have their own.
func failed(err error, words string) error {
	if err != nil && server.ProblemOf(err).Code == server.CodeInternal {
		return server.Reword(err, 0, words)
	}
	return err
}

// explained is the error of a command, with the id that the caller used.
func (d *door) explained(ctx context.Context, c sandbox.Caller, id string, err error) error {
	if errdefs.IsUnavailable(err) && ctx.Err() == nil { // it may be about the sandbox, which went meanwhile
		sb, look := d.Sandboxes.Get(ctx, c, id)
		switch {
		case look != nil:
			err = look
		case sb.Status != sandbox.Live:
			err = &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: sandbox.NotRunning}
		}
	}
	err = doors.GuestError(err)
	id = sandbox.Clip(id, 128)
	switch code := server.ProblemOf(err).Code; {
	case code == server.CodeNotRunning:
		return server.Reword(err, http.StatusBadRequest, "Sandbox "+id+" is not running")
	case isGone(err):
		return server.Reword(err, 0, "Sandbox "+id+" not found")
	}
	return err
}

// isGone reports that there is no such sandbox, or no more.
func isGone(err error) bool {
	switch p := server.ProblemOf(err); p.Code {
	case server.CodeSandboxDestroyed, server.CodeSandboxExpired:
		return true
	default:
		return p.Code == server.CodeNotFound && p.Detail == "Sandbox not found"
	}
}
