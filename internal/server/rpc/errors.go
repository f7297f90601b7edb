package rpc

import (
	"context"
	"errors"
	"os"

	"connectrpc.com/connect/v2"

	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// codes has the status of each code of an error.
var codes = map[server.Code]connect.Code{
	server.CodeInvalidValue:     connect.CodeInvalidArgument,
	server.CodeInvalidRequest:   connect.CodeInvalidArgument,
	server.CodeUnauthenticated:  connect.CodeUnauthenticated,
	server.CodeForbidden:        connect.CodePermissionDenied,
	server.CodeNotFound:         connect.CodeNotFound,
	server.CodeSandboxDestroyed: connect.CodeNotFound,
	server.CodeSandboxExpired:   connect.CodeNotFound,
	server.CodeMethodNotAllowed: connect.CodeUnimplemented,
	server.CodeTimeout:          connect.CodeDeadlineExceeded,
	server.CodeNotRunning:       connect.CodeFailedPrecondition,
	server.CodeAlreadyExists:    connect.CodeAlreadyExists,
	server.CodeConflict:         connect.CodeFailedPrecondition,
	server.CodeTooLarge:         connect.CodeResourceExhausted,
	server.CodeUnsupportedMedia: connect.CodeInvalidArgument,
	server.CodeOutOfRange:       connect.CodeOutOfRange,
	server.CodeUnsupported:      connect.CodeFailedPrecondition, // Unimplemented says that there is no such call
	server.CodeLimitExceeded:    connect.CodeResourceExhausted,
	server.CodeQuotaExceeded:    connect.CodeResourceExhausted,
	server.CodeRateLimited:      connect.CodeResourceExhausted,
	server.CodeCanceled:         connect.CodeCanceled,
	server.CodeUnavailable:      connect.CodeUnavailable,
	server.CodeInternal:         connect.CodeInternal,
}

// Texts that clients match on.
const (
	sessionNotFound = "Session not found"
	noAnswer        = "Request to process_api timed out"
	notReady        = "process_api did not become ready within 30.0s"
)

// status is an error as the status of a call. What is agentbox's fault goes to the
// log in full; what a stream's sender or receiver did is not.
func status(ctx context.Context, err error) *connect.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, "the call's deadline has passed").WithCause(err)
	}
	err = doors.GuestError(err)
	var stream *connect.Error
	if server.ProblemOf(err).Code == server.CodeInternal && errors.As(err, &stream) {
		return connect.NewError(stream.Code(), stream.Message()).WithCause(err)
	}
	p := server.Explain(ctx, err)
	if isUnknown(p) {
		p.Detail = sessionNotFound
	}
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		for name, v := range p.GetHeaders() {
			info.ResponseTrailer().Set(name, v[0])
		}
	}
	return connect.NewError(codes[p.Code], p.Detail).WithCause(err)
}

func isUnknown(p *server.Problem) bool {
	return p.Code == server.CodeNotFound || p.Code == server.CodeSandboxDestroyed || p.Code == server.CodeSandboxExpired
}

// isLate reports that something inside took too long, by a context or by the deadline of a
// connection.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// inAnswer is the text for an error that these calls tell in their answers: that
// there is no such session, that it does not run, or that it does not answer. Other
// errors are a status: false.
func inAnswer(ctx context.Context, err error) (text string, ok bool) {
	var state *sandbox.StateError
	var draining *sandbox.DrainingError
	p := server.ProblemOf(err)
	switch {
	case ctx.Err() != nil || errors.As(err, &draining):
		return "", false
	case isUnknown(p):
		return sessionNotFound, true
	case errors.As(err, &state):
		return p.Detail, true
	case isLate(err):
		server.LogError(ctx, err)
		return noAnswer, true
	case p.Code == server.CodeUnavailable:
		server.LogError(ctx, err)
		return p.Detail, true
	}
	return "", false
}
