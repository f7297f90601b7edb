package rpc

import (
	"context"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/sandbox"
)

// Packages installs packages in sandboxes.
type Packages interface {
	// PipInstall installs Python packages for the sandbox's user.
	PipInstall(ctx context.Context, c sandbox.Caller, id string, packages []string) (*sandbox.Result, error)
}

// PipInstall installs Python packages.
func (s *service) PipInstall(ctx context.Context, q *sandboxv1.PipInstallRequest) (*sandboxv1.ExecResponse, error) {
	if s.Packages == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, "this server installs no packages")
	}
	res, err := s.Packages.PipInstall(ctx, caller(ctx), q.GetSessionId(), q.GetPackages())
	if err != nil {
		return failedExec(ctx, err)
	}
	return answerOf(res, defaultWorkdir), nil
}
