package rest

import (
	"context"

	"agentbox/internal/sandbox"
)

// Sessions is a stub of this slice.
type Sessions interface{}

func (x *execRoutes) executeInSession(ctx context.Context, c sandbox.Caller, in *executeInput) (*executeOutput, error) {
	return nil, nil
}

func (x *execRoutes) streamInSession(ctx context.Context, c sandbox.Caller, in *executeInput) (reply, error) {
	return nil, nil
}
