package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Installs are what the routes about packages need; manager.Manager has it.
type Installs interface {
	Install(ctx context.Context, c sandbox.Caller, id string, with packages.Tool, names []string, out client.Output) (*manager.Exec, error)
}

type installInput struct {
	SandboxID
	Encoding
	Body struct {
		Packages []string `json:"packages" maxItems:"500" nullable:"false" doc:"Names, with versions if need be. Options, URLs and paths are refused."`
	}
}

type installOutput struct{ Body ExecResult }

func (x *execRoutes) registerPackages(m Installs) {
	for _, tool := range packages.Tools() {
		route(x.API, huma.Operation{
			OperationID: "install-" + tool.Name + "-packages", Method: http.MethodPost, Path: "/sandboxes/{id}/packages/" + tool.Name, Summary: "Install " + tool.Of, Tags: []string{"Packages"},
			Description: "Waits for the end of the installation, which is a result also when it fails. The sandbox must be allowed to reach the package index. When the client goes away the installation goes on.",
		}, server.Route{}, func(ctx context.Context, c sandbox.Caller, in *installInput) (*installOutput, error) {
			return x.install(ctx, c, m, tool, in)
		})
	}
}

func (x *execRoutes) install(ctx context.Context, c sandbox.Caller, m Installs, tool packages.Tool, in *installInput) (*installOutput, error) {
	merged := &capture{}
	e, err := m.Install(ctx, c, in.ID, tool, in.Body.Packages, merged.output())
	err = x.started(ctx, c, in.ID, tool.Name+" install "+strings.Join(in.Body.Packages, " "), e, err)
	if err != nil {
		return nil, err
	}
	res, err := e.Wait(ctx)
	if err != nil {
		_ = e.Detach() // it is kept anyway, should this not arrive
		return nil, err
	}
	if res.Outcome == sandbox.Lost {
		return nil, x.lost(ctx, c, in.ID, res)
	}
	out := &installOutput{resultOf(res)}
	merged.fill(&out.Body, in.base64())
	return out, nil
}

// started records that a command was started, or why not.
func (x *execRoutes) started(ctx context.Context, c sandbox.Caller, id, command string, e *manager.Exec, err error) error {
	err = guestError(err)
	details := map[string]string{"command": command}
	if err == nil {
		details["exec_id"] = e.ID()
	}
	x.recordOn(ctx, c, audit.Exec, x.uid(ctx, c, id, sandbox.Sandbox{}), err, details)
	return err
}
