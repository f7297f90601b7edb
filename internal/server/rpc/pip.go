package rpc

import (
	"context"
	"errors"
	"strings"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/packages"
)

// PipInstall installs Python packages for the sandbox's user.
func (s *service) PipInstall(ctx context.Context, q *sandboxv1.PipInstallRequest) (*sandboxv1.ExecResponse, error) {
	c := caller(ctx)
	pip, _ := packages.Find("pip") // which there is
	e, err := s.Sandboxes.Install(ctx, c, q.GetSessionId(), pip, q.GetPackages(), client.Output{})
	s.recordExec(ctx, c, q.GetSessionId(), "pip install "+strings.Join(q.GetPackages(), " "), e, err)
	callOf(ctx).free(q)
	var refused *packages.RefusedError
	if errors.As(err, &refused) {
		return &sandboxv1.ExecResponse{ExitCode: -1, Stderr: refused.Error()}, nil
	}
	if err != nil {
		return failedExec(ctx, err)
	}
	return waited(ctx, e, defaultWorkdir)
}
