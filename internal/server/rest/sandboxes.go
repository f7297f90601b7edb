package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Sandboxes are what the routes about whole sandboxes need; manager.Manager has
// it.
type Sandboxes interface {
	Create(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest, key string) (sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) (sandbox.Page, error)
	Update(ctx context.Context, c sandbox.Caller, id string, u sandbox.Update) (sandbox.Sandbox, error)
	Start(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	Destroy(ctx context.Context, c sandbox.Caller, id string) error
	DestroyWithStorage(ctx context.Context, c sandbox.Caller, id string) error
	// TenantStorage reports whether sandboxes may have a tenant's storage.
	TenantStorage() bool
	Stats(ctx context.Context, c sandbox.Caller, id string) (runtime.Stats, error)
	Events(ctx context.Context, c sandbox.Caller, id string, after int64) ([]sandbox.Event, error)
	Follow(ctx context.Context, c sandbox.Caller, id string, after int64) (*manager.Follower, error)
	Capabilities() runtime.Capabilities
}

// SandboxID names a sandbox in a path.
type SandboxID struct {
	ID string `path:"id" maxLength:"128" doc:"The sandbox: its id, short id, label or name."`
}

func (s *SandboxID) sandboxID() string { return s.ID }

type listInput struct {
	Page
	Label  []string `query:"label,explode" maxItems:"64" doc:"Only with this label, NAME=VALUE; more than one: with all of them."`
	Status []string `query:"status,explode" maxItems:"16" enum:"creating,running,paused,suspended,stopping,stopped,starting,error,destroying" doc:"Only in this state; more than one: in one of them."`
	Name   string   `query:"name" maxLength:"128" doc:"Only the one of this name."`
}

type listOutput struct{ Body List[Sandbox] }

type updateInput struct {
	SandboxID
	Body struct {
		Labels      map[string]*string `json:"labels,omitempty" doc:"Labels to set; null removes one. Others stay."`
		IdleTimeout *Duration          `json:"idle_timeout,omitempty"`
		Lifetime    *Duration          `json:"lifetime,omitempty"`
		NewLimits
	}
}

type destroyInput struct {
	SandboxID
	RemoveStorage Bool `query:"remove_storage" doc:"Remove its tenant's storage, too, with all that is in it. While another sandbox has it, that is a conflict and nothing is done."`
}

func (a *API) addSandboxes() {
	tags := []string{"Sandboxes"}
	route(a, huma.Operation{
		OperationID: "create-sandbox", Method: http.MethodPost, Path: "/sandboxes", Summary: "Make a sandbox", Tags: tags,
		Description: "The answer comes when commands can run.", DefaultStatus: http.StatusCreated,
	}, server.Route{Creates: true}, a.createSandbox)
	route(a, huma.Operation{
		OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/sandboxes", Summary: "List your sandboxes, oldest first", Tags: tags,
	}, server.Route{}, a.listSandboxes)
	route(a, huma.Operation{
		OperationID: "get-sandbox", Method: http.MethodGet, Path: "/sandboxes/{id}", Summary: "Look at a sandbox", Tags: tags,
		Description: "For a day after its end the error tells why there is none any more.",
	}, server.Route{}, a.getSandbox)
	route(a, huma.Operation{
		OperationID: "update-sandbox", Method: http.MethodPatch, Path: "/sandboxes/{id}", Summary: "Change labels, times and limits of a sandbox", Tags: tags,
		Description: "lifetime counts from now on. 0 seconds are without end, if the operator allows it. Limits hold at once, but programs see the memory and cores that the sandbox was started with until it is started again. disk can't be changed.",
	}, server.Route{}, a.updateSandbox)
	route(a, huma.Operation{
		OperationID: "destroy-sandbox", Method: http.MethodDelete, Path: "/sandboxes/{id}", Summary: "Destroy a sandbox", Tags: tags,
		Description: "Its processes and files are gone when the answer comes. Its volumes stay; so does its tenant's storage, unless remove_storage is set and no other sandbox has it.", DefaultStatus: http.StatusNoContent,
	}, server.Route{}, a.destroySandbox)
	route(a, huma.Operation{
		OperationID: "start-sandbox", Method: http.MethodPost, Path: "/sandboxes/{id}/start", Summary: "Run a stopped sandbox again", Tags: tags,
		Description: "With the files that it had. One that runs goes on.",
	}, server.Route{Creates: true}, a.startSandbox)
	route(a, huma.Operation{
		OperationID: "stop-sandbox", Method: http.MethodPost, Path: "/sandboxes/{id}/stop", Summary: "Stop a sandbox and keep its files", Tags: tags,
		Description: "Its processes end. One that is stopped stays so.",
	}, server.Route{}, a.stopSandbox)
}

func (a *API) listSandboxes(ctx context.Context, c sandbox.Caller, in *listInput) (*listOutput, error) {
	f := sandbox.Filter{Name: in.Name, Cursor: in.Cursor, Limit: in.Limit}
	for _, s := range in.Status {
		f.Status = append(f.Status, sandbox.State(s))
	}
	for _, l := range in.Label {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, &sandbox.InvalidError{Field: "label", Value: l, Allowed: "NAME=VALUE"}
		}
		if before, twice := f.Labels[name]; twice && before != value {
			return nil, &sandbox.InvalidError{Field: "label", Value: l, Allowed: "one value for each name"}
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[name] = value
	}
	page, err := a.Sandboxes.List(ctx, c, f)
	if err != nil {
		return nil, err
	}
	var items []Sandbox
	for i := range page.Items {
		items = append(items, sandboxOf(&page.Items[i]))
	}
	return &listOutput{list(items, page.Next)}, nil
}

func (a *API) getSandbox(ctx context.Context, c sandbox.Caller, in *SandboxID) (*sandboxOutput, error) {
	sb, err := a.Sandboxes.Get(ctx, c, in.ID)
	return shown(sb, err)
}

func (a *API) updateSandbox(ctx context.Context, c sandbox.Caller, in *updateInput) (*sandboxOutput, error) {
	b := &in.Body
	u := sandbox.Update{Labels: b.Labels, IdleTimeout: changed(b.IdleTimeout), Lifetime: changed(b.Lifetime)}
	var sb sandbox.Sandbox
	var err error
	if u.Limits, err = b.chosen(); err == nil {
		sb, err = a.Sandboxes.Update(ctx, c, in.ID, u)
	}
	a.recordOn(ctx, c, audit.Update, a.uid(ctx, c, in.ID, sb), err, nil)
	return shown(sb, err)
}

func changed(d *Duration) *time.Duration {
	if d == nil {
		return nil
	}
	s := span(d)
	return &s
}

func (a *API) startSandbox(ctx context.Context, c sandbox.Caller, in *SandboxID) (*sandboxOutput, error) {
	sb, err := a.Sandboxes.Start(ctx, c, in.ID)
	a.recordOn(ctx, c, audit.Start, a.uid(ctx, c, in.ID, sb), err, nil)
	return shown(sb, err)
}

func (a *API) stopSandbox(ctx context.Context, c sandbox.Caller, in *SandboxID) (*sandboxOutput, error) {
	sb, err := a.Sandboxes.Stop(ctx, c, in.ID)
	a.recordOn(ctx, c, audit.Stop, a.uid(ctx, c, in.ID, sb), err, nil)
	return shown(sb, err)
}

func (a *API) destroySandbox(ctx context.Context, c sandbox.Caller, in *destroyInput) (*struct{}, error) {
	uid := a.uid(ctx, c, in.ID, sandbox.Sandbox{})
	var err error
	var details map[string]string
	if in.RemoveStorage.Value {
		details = map[string]string{"storage": "removed"}
		err = a.Sandboxes.DestroyWithStorage(ctx, c, in.ID)
	} else {
		err = a.Sandboxes.Destroy(ctx, c, in.ID)
	}
	a.recordOn(ctx, c, audit.Destroy, uid, err, details)
	return nil, err
}

// uid is what the audit record calls a sandbox, whichever of its ids was used;
// empty: the caller has none such.
func (a *API) uid(ctx context.Context, c sandbox.Caller, id string, sb sandbox.Sandbox) string {
	if sb.UID == "" {
		sb, _ = a.Sandboxes.Get(ctx, c, id) // the error is that of the call itself, too
	}
	return sb.UID
}

func shown(sb sandbox.Sandbox, err error) (*sandboxOutput, error) {
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{sandboxOf(&sb)}, nil
}
