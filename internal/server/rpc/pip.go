package rpc

import (
	"context"
	"errors"
	"strings"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

// PipInstall installs Python packages for the sandbox's user.
func (s *service) PipInstall(ctx context.Context, q *sandboxv1.PipInstallRequest) (*sandboxv1.ExecResponse, error) {
	c := caller(ctx)
	pip, _ := packages.Find("pip") // which there is
	e, err := s.Sandboxes.Install(ctx, c, q.GetSessionId(), pip, q.GetPackages(), client.Output{})
	details := map[string]string{"command": "pip install " + strings.Join(q.GetPackages(), " ")}
	if err == nil {
		details["exec_id"] = e.ID()
	}
	doors.Record(ctx, s.Audit, c, audit.Exec, s.uid(ctx, c, q.GetSessionId()), doors.GuestError(err), details)
	var refused *packages.RefusedError
	if errors.As(err, &refused) {
		return &sandboxv1.ExecResponse{ExitCode: -1, Stderr: refused.Error()}, nil
	}
	var res *sandbox.Result
	if err == nil {
		if res, err = e.Wait(ctx); err != nil {
			_ = e.Detach() // it goes on without its client
		}
	}
	if err != nil {
		return failedExec(ctx, err)
	}
	return answerOf(res, defaultWorkdir), nil
}
