package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// AuditRecord is one action that was done or refused.
type AuditRecord struct {
	Time      time.Time         `json:"time"`
	Action    string            `json:"action" doc:"Such as create, exec, file_read, key_revoke, auth_refused."`
	Owner     string            `json:"owner"`
	KeyID     string            `json:"key_id"`
	Sandbox   string            `json:"sandbox"`
	Details   map[string]string `json:"details"`
	RequestID string            `json:"request_id"`
	Result    string            `json:"result" doc:"ok, or the code of the error."`
}

type auditInput struct {
	Page
	Sandbox string    `query:"sandbox" maxLength:"64" doc:"Only what concerns this sandbox, by its id."`
	Action  string    `query:"action" maxLength:"64" doc:"Only this action."`
	Since   time.Time `query:"since" doc:"Only from this time on."`
	Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"What comes first."`
	All     Bool      `query:"all" doc:"The records of all owners, and those of nobody, such as refused keys. For admins."`
}

type auditOutput struct{ Body List[AuditRecord] }

func (a *API) addAudit() {
	route(a, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Summary: "Who did what", Tags: []string{"Service"},
		Description: "A page can be empty and have a next_cursor: each call reads a bounded part of the log.",
	}, server.Route{}, a.listAudit)
}

func (a *API) listAudit(ctx context.Context, c sandbox.Caller, in *auditInput) (*auditOutput, error) {
	q := audit.Query{
		Owner: c.Owner, Sandbox: in.Sandbox, Action: audit.Action(in.Action), Since: in.Since, OldestFirst: in.Order == "oldest",
		Limit: in.Limit, Cursor: in.Cursor,
	}
	if in.All.Value {
		if !c.Admin {
			return nil, sandbox.Refuse(errdefs.ErrPermissionDenied, "the records of all owners need an admin key")
		}
		q.AllOwners = true
	}
	page, err := a.Audit.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	var items []AuditRecord
	for _, r := range page.Records {
		if r.Details == nil {
			r.Details = map[string]string{} // an object also when it is empty
		}
		items = append(items, AuditRecord{
			Time: r.Time, Action: string(r.Action), Owner: r.Owner, KeyID: r.KeyID, Sandbox: r.Sandbox, Details: r.Details, RequestID: r.RequestID, Result: r.Result,
		})
	}
	return &auditOutput{list(items, page.Next)}, nil
}

// record writes what was done, or not, that concerns no sandbox.
func (a *API) record(ctx context.Context, c sandbox.Caller, action audit.Action, err error, details map[string]string) {
	a.recordOn(ctx, c, action, "", err, details)
}

// recordOn writes what was done with a sandbox, or not. That it can't be
// written does not undo it. Details that are empty are left out.
func (a *API) recordOn(ctx context.Context, c sandbox.Caller, action audit.Action, uid string, err error, details map[string]string) {
	doors.Record(ctx, a.Audit, c, action, uid, err, details)
}
