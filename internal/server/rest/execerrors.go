package rest

import (
	"errors"
	"syscall"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// guestError lets callers read what the agent in their sandbox, or the client of
// it, says about a request. It is about their own files and commands, escaped
// and bounded.
func guestError(err error) error {
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

// onPath says that an error about a value is about the path. A disk that is full
// is no limit that goes by: trying again later does not help.
func onPath(err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	err = guestError(err)
	if err == nil {
		return nil
	}
	p := server.ProblemOf(err)
	if full && p.Code == server.CodeLimitExceeded {
		return server.NewProblem(server.CodeTooLarge, p.Detail)
	}
	if p.Code == server.CodeInvalidValue && p.Field == "" {
		q := *p
		q.Field = "path"
		return &q
	}
	return err
}
