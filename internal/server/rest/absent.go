package rest

import (
	"cmp"
	"context"
	"net/http"
	"strings"

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
	{http.MethodGet, "/secrets", "list-secrets", "List your secrets", auth.NeedKey},
	{http.MethodPost, "/secrets", "set-secret", "Keep a secret", auth.NeedKey},
	{http.MethodDelete, "/secrets/{name}", "remove-secret", "Remove a secret", auth.NeedKey},
}

// absentThing is what such routes name in their paths.
type absentThing struct {
	Name string `path:"name" maxLength:"128"`
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
		switch {
		case strings.Contains(r.path, "{id}"):
			route(a, op, access, func(ctx context.Context, c sandbox.Caller, in *SandboxID) (*struct{}, error) {
				return nil, inside(ctx, c, in.ID)
			})
		case strings.Contains(r.path, "{name}"):
			route(a, op, access, func(context.Context, sandbox.Caller, *absentThing) (*struct{}, error) { return nil, no })
		default:
			route(a, op, access, func(context.Context, sandbox.Caller, *struct{}) (*struct{}, error) { return nil, no })
		}
	}
}
