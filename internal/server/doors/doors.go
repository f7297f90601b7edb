// Package doors has what several doors need to translate the core's results and
// errors in the same way.
package doors

import (
	"context"
	"errors"
	"maps"

	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// MustBeSeen refuses to make what nobody could see afterwards: the audit log tells by
// Err why it could not write its last record.
func MustBeSeen(ctx context.Context, log interface{ Err() error }) error {
	err := log.Err()
	if err == nil {
		return nil
	}
	server.LogError(ctx, err)
	return sandbox.Refuse(errdefs.ErrUnavailable, "the server can't keep its audit log, and makes no sandboxes meanwhile")
}

// GuestError lets callers read what the agent in their sandbox, or the client of
// it, says about a request. It is about their own files and commands, escaped
// and bounded.
func GuestError(err error) error {
	var told *guest.Error
	if err == nil || !errors.As(err, &told) || isDomain(err) {
		return err
	}
	if errdefs.IsInternal(told) || errdefs.IsUnavailable(told) {
		return err // not the caller's to mend
	}
	return sandbox.Refuse(told.Unwrap(), "%s", told.Error())
}

// isDomain reports an error that the base explains better.
func isDomain(err error) bool {
	var state *sandbox.StateError
	var gone *sandbox.GoneError
	var invalid *sandbox.InvalidError
	return errors.As(err, &state) || errors.As(err, &gone) || errors.As(err, &invalid)
}

// Record writes what was done with a sandbox, or not; an empty uid is none. That it
// can't be written does not undo it. Details that are empty are left out.
func Record(ctx context.Context, to server.Recorder, c sandbox.Caller, action audit.Action, uid string, err error, details map[string]string) {
	result := audit.OK
	if err != nil {
		result = string(server.ProblemOf(err).Code)
	}
	maps.DeleteFunc(details, func(_, v string) bool { return v == "" })
	r := audit.Record{Action: action, Owner: c.Owner, KeyID: c.KeyID, Sandbox: uid, RequestID: c.RequestID, Result: result, Details: details}
	if err := to.Write(r); err != nil {
		server.LogError(ctx, err)
	}
}

// Lost is the error of a command that went down with its sandbox, which sb was
// looked up as afterwards.
func Lost(sb *sandbox.Sandbox, res *sandbox.Result) error {
	if sb.Status == sandbox.Destroying {
		return &sandbox.GoneError{Tombstone: sandbox.Tombstone{UID: sb.UID, Short: sb.Short, Reason: sb.Reason, ReasonText: sb.ReasonText}}
	}
	return &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: res.Reason}
}

// Ended tells of a sandbox that stopped or went while something was done in it, rather
// than of what broke by that.
func Ended(ctx context.Context, boxes interface {
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
}, c sandbox.Caller, id string, err error,
) error {
	if err == nil || !server.BodyEnded(ctx) && (!errdefs.IsUnavailable(err) || ctx.Err() != nil) {
		return err
	}
	sb, look := boxes.Get(context.WithoutCancel(ctx), c, id)
	switch {
	case look != nil:
		return look
	case sb.Status != sandbox.Live:
		return &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: sandbox.NotRunning}
	}
	return err
}
