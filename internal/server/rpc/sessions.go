package rpc

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// CreateSession makes a session, or returns the one that there is of its id.
func (s *service) CreateSession(ctx context.Context, q *sandboxv1.CreateSessionRequest) (*sandboxv1.CreateSessionResponse, error) {
	c := caller(ctx)
	r, err := s.request(q)
	if err == nil {
		err = doors.MustBeSeen(ctx, s.Audit)
	}
	var sb sandbox.Sandbox
	made := false
	if err == nil {
		sb, made, err = s.Sandboxes.Ensure(ctx, c, r)
		err = onHosts(err)
	}
	if made || err != nil {
		doors.Record(ctx, s.Audit, c, audit.Create, sb.UID, err, map[string]string{
			"image": r.Image, "session": r.Aliases[0].Value, "tenant": r.Tenant, "network": string(r.Network.Mode), "allow": strings.Join(r.Network.Allow, " "),
		})
	}
	if err != nil {
		return nil, notCreated(ctx, err)
	}
	return &sandboxv1.CreateSessionResponse{Session: infoOf(&sb, r.Aliases[0].Value)}, nil
}

// notCreated tells of what only the operator can mend as the server's own fault.
func notCreated(ctx context.Context, err error) error {
	p := server.ProblemOf(err)
	switch {
	case ctx.Err() != nil:
	case isUnknown(p):
		server.LogError(ctx, err)
		return connect.NewError(connect.CodeInternal, "Failed to create sandbox container").WithCause(err)
	case isLate(err):
		server.LogError(ctx, err)
		return connect.NewError(connect.CodeUnavailable, notReady).WithCause(err)
	}
	return status(ctx, err)
}

// request translates for the core.
func (s *service) request(q *sandboxv1.CreateSessionRequest) (r sandbox.CreateRequest, err error) {
	d := s.Session
	id := q.GetSessionId()
	if id == "" {
		id = ids.UUID()
	}
	l := q.GetLimits()
	r = sandbox.CreateRequest{
		Image: d.Image, User: d.User, Workdir: d.Workdir, Aliases: []sandbox.Alias{{Kind: Kind, Value: id}}, Tenant: q.GetTenantId(),
		Limits:   sandbox.Limits{Memory: l.GetMemoryBytes(), CPUs: l.GetCpus(), Disk: l.GetDiskBytes(), Pids: l.GetPids()},
		Defaults: d.Limits, IdleTimeout: d.IdleTimeout, Lifetime: d.Lifetime, OnIdle: sandbox.IdleDestroy, ProcessAPI: true,
	}
	if err := sandbox.CheckID("session_id", id); err != nil {
		return r, err
	}
	r.Network, err = s.network(q)
	return r, err
}

// DestroySession ends a session.
func (s *service) DestroySession(ctx context.Context, q *sandboxv1.DestroySessionRequest) (*sandboxv1.DestroySessionResponse, error) {
	c := caller(ctx)
	sb, err := s.Sandboxes.Get(ctx, c, q.GetSessionId())
	if err == nil {
		err = s.Sandboxes.Destroy(ctx, c, sb.UID)
	}
	doors.Record(ctx, s.Audit, c, audit.Destroy, sb.UID, err, map[string]string{})
	switch {
	case err == nil:
		return &sandboxv1.DestroySessionResponse{Success: true}, nil
	case ctx.Err() != nil:
		return nil, status(ctx, err)
	case !errdefs.IsNotFound(err):
		server.LogError(ctx, err) // it is tried again
	}
	return &sandboxv1.DestroySessionResponse{}, nil
}

// GetSession describes a session, which is a use of it.
func (s *service) GetSession(ctx context.Context, q *sandboxv1.GetSessionRequest) (*sandboxv1.GetSessionResponse, error) {
	sb, err := s.Sandboxes.Use(ctx, caller(ctx), q.GetSessionId())
	if err != nil {
		return nil, status(ctx, err)
	}
	return &sandboxv1.GetSessionResponse{Session: infoOf(&sb, q.GetSessionId())}, nil
}

// ListSessions lists all sandboxes of the caller, whichever door made them.
func (s *service) ListSessions(ctx context.Context, _ *sandboxv1.ListSessionsRequest) (*sandboxv1.ListSessionsResponse, error) {
	c := caller(ctx)
	a := &sandboxv1.ListSessionsResponse{}
	for f := (sandbox.Filter{Limit: sandbox.MaxPage}); ; {
		page, err := s.Sandboxes.List(ctx, c, f)
		if err != nil {
			return nil, status(ctx, err)
		}
		for _, sb := range page.Items {
			if sb.Status != sandbox.Destroying && sb.Status != sandbox.Destroyed {
				a.Sessions = append(a.Sessions, infoOf(&sb, sb.UID))
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return a, nil
		}
	}
}

// infoOf describes a sandbox. One that the door did not make has the id by which
// the caller knows it.
func infoOf(sb *sandbox.Sandbox, asked string) *sandboxv1.SessionInfo {
	i := &sandboxv1.SessionInfo{
		SessionId: asked, ContainerId: sb.Short, CreatedAt: seconds(sb.Created), LastActivity: seconds(sb.LastActivity),
		Status: words[sb.Status], AllowedHosts: hostsOf(&sb.Network),
	}
	for _, a := range sb.Aliases {
		if a.Kind == Kind {
			i.SessionId = a.Value
		}
	}
	if sb.Tenant != "" {
		i.TenantId = &sb.Tenant
	}
	return i
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// words are what the door calls states.
var words = map[sandbox.State]string{
	sandbox.Creating: "created", sandbox.Created: "created", sandbox.Live: "running", sandbox.Paused: "paused", sandbox.Suspended: "paused",
	sandbox.Stopping: "running", sandbox.Stopped: "exited", sandbox.Starting: "exited", sandbox.Failed: "dead", sandbox.Destroying: "dead",
}
