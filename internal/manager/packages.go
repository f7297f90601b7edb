package manager

import (
	"context"
	"fmt"

	"agentbox/internal/guest/client"
	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
)

// Install starts the installation of packages in the caller's sandbox, as StartExec
// starts a command: it runs on to its end, or its time limit, when its client goes
// away. A *packages.RefusedError: nothing was started, since a package is named in a
// form that is not taken, or the sandbox's network lacks a host that is needed.
func (m *Manager) Install(ctx context.Context, c sandbox.Caller, id string, with packages.Tool, names []string, out client.Output) (*Exec, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("install packages: %w", err)
	}
	cmd, err := with.Command(b.snapshot().Network, names)
	if err != nil {
		return nil, err
	}
	cmd.OnDisconnect = sandbox.Keep
	cmd.Timeout = min(cmd.Timeout, m.policy.MaxExecTimeout)
	return m.StartExec(ctx, c, b.uid(), cmd, out, "")
}
