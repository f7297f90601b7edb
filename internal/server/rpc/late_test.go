package rpc_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"connectrpc.com/connect/v2"
	"github.com/containerd/errdefs"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

// mute are sandboxes whose agents do not answer in time.
type mute struct{ *manager.Manager }

var errMute = fmt.Errorf("greet the guest agent: %w: read: %w", errdefs.ErrUnavailable, os.ErrDeadlineExceeded)

func (mute) Ensure(context.Context, sandbox.Caller, sandbox.CreateRequest) (sandbox.Sandbox, bool, error) {
	return sandbox.Sandbox{}, false, errMute
}

func (mute) StartExec(context.Context, sandbox.Caller, string, sandbox.Command, client.Output, string) (*manager.Exec, error) {
	return nil, errMute
}

// TestAgentsThatDoNotAnswer are told of in the words that clients match on.
func TestAgentsThatDoNotAnswer(t *testing.T) {
	w := start(t, func(_ *server.Options, p *rpc.Parts) { p.Sandboxes = mute{p.Sandboxes.(*manager.Manager)} }) //nolint:forcetypeassert // start's own
	c := w.client(w.acme)
	_, err := c.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{})
	if connect.CodeOf(err) != connect.CodeUnavailable || err.Error() != "unavailable: process_api did not become ready within 30.0s" {
		t.Errorf("a session that does not begin: %v", err)
	}
	a, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: "a", Command: "true"})
	if err != nil || a.GetExitCode() != -1 || !a.GetTimedOut() || a.GetStderr() != "Request to process_api timed out" {
		t.Errorf("a command that does not begin: %v, %v", a, err)
	}
	all := w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "true"}))
	if len(all) != 1 || all[0].GetType() != "error" || all[0].GetData() != "Request to process_api timed out" {
		t.Errorf("its stream is %v", all)
	}
}
