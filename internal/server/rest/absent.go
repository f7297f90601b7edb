package rest

import (
	"cmp"
	"context"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// absent are routes of the API that this server can't serve. They say so, so
// that a client can tell it from a mistake of its own.
var absent = []struct {
	method, path, id, summary string
	access                    auth.Access
}{
	{http.MethodPost, "/sandboxes/{id}/packages/pip", "install-pip-packages", "Install Python packages", auth.NeedKey},
}

func (a *API) addAbsent() {
	no := sandbox.Refuse(errdefs.ErrNotImplemented, "this server can't do that yet")
	inside := func(ctx context.Context, c sandbox.Caller, id string) error {
		_, err := a.Sandboxes.Get(ctx, c, id)
		return cmp.Or[error](err, no)
	}
	for _, r := range absent {
		op := huma.Operation{
			OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Tags: []string{"Not on this server"}, Description: "This server can't do that: unsupported.",
		}
		access := server.Route{Access: r.access}
		route(a, op, access, func(ctx context.Context, c sandbox.Caller, in *SandboxID) (*struct{}, error) {
			return nil, inside(ctx, c, in.ID)
		})
	}
}
