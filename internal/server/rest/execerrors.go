package rest

import (
	"errors"
	"syscall"

	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// guestError lets callers read what the agent in their sandbox says.
var guestError = doors.GuestError

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
