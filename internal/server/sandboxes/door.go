// Package sandboxes is the REST door /api/sandboxes, which speaks as autocoder's
// server does: isolated machines for projects, each with a workspace that can outlive
// it. docs/SANDBOXES.md tells what differs.
package sandboxes

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Prefix begins the paths of the routes about sandboxes.
const Prefix = "/api/sandboxes"

// Kind is the kind of ids that the door gives: "sandbox-" and 8 hex digits.
const Kind = "autocoder"

// Sandboxes are the core; manager.Manager has it.
type Sandboxes interface {
	Create(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest, key string) (sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) (sandbox.Page, error)
	Start(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	Destroy(ctx context.Context, c sandbox.Caller, id string) error
	DestroyWithVolume(ctx context.Context, c sandbox.Caller, id, volume string) error
	DestroyStopped(ctx context.Context, c sandbox.Caller, id string, before time.Time, volume string) (bool, error)
	StartExec(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, key string) (*manager.Exec, error)
	Capabilities() runtime.Capabilities
}

// Volumes are where workspaces are kept; volume.Volumes has it.
type Volumes interface {
	List(ctx context.Context, owner string) ([]sandbox.Volume, error)
	Holders(ctx context.Context, owner, name string) ([]string, error)
}

// Settings keep what owners set; store.Store has it.
type Settings interface {
	// Setting is empty where nothing was set.
	Setting(ctx context.Context, owner, name string) (string, error)
	SetSetting(ctx context.Context, owner, name, value string) error
}

// Audit is the audit log; audit.Log is one.
type Audit interface {
	Write(r audit.Record) error
	// Err tells why the last record could not be written; nil if it was.
	Err() error
}

// Parts are what the door translates for.
type Parts struct {
	Sandboxes Sandboxes
	Volumes   Volumes
	Settings  Settings
	Audit     Audit
	// Image is what sandboxes are made of whose caller does not say.
	Image func() string
	// Network is what they may reach.
	Network func() sandbox.Network
	// MaxIdle and MaxLifetime are the operator's maximums; 0: there are none. Exec is
	// the longest that a command may take.
	MaxIdle, MaxLifetime, Exec time.Duration
}

// door has the routes.
type door struct {
	Parts
	router *server.Router
	// setting is held while an owner's settings change.
	setting sync.Mutex
}

// Add adds the door's routes to a router.
func Add(router *server.Router, parts Parts) {
	d := &door{Parts: parts, router: router}
	for _, collection := range []string{Prefix, Prefix + "/{$}"} {
		d.add("POST "+collection, server.Route{Creates: true}, d.create)
		d.add("GET "+collection, server.Route{}, d.list)
	}
	d.add("GET "+Prefix+"/{id}", server.Route{}, d.get)
	d.add("DELETE "+Prefix+"/{id}", server.Route{}, d.destroy)
	d.add("POST "+Prefix+"/{id}/start", server.Route{Creates: true}, d.start)
	d.add("POST "+Prefix+"/{id}/stop", server.Route{}, d.stop)
	d.add("POST "+Prefix+"/{id}/execute", server.Route{MaxBody: server.MaxDataBody}, d.execute)
	d.add("POST "+Prefix+"/{id}/cleanup", server.Route{}, d.cleanup)
	for _, path := range []string{Prefix + "/test", "/api/sandbox/test"} { // one is in the router there, the other in its pages
		d.add("POST "+path, server.Route{Creates: true}, d.test)
	}
	d.add("GET /api/settings", server.Route{}, d.getSettings)
	d.add("PATCH /api/settings", server.Route{}, d.setSettings)
	d.add("GET /api/health", server.Route{Access: auth.Open}, func(*http.Request, sandbox.Caller) (any, error) {
		return map[string]string{"status": "healthy"}, nil
	})
	d.add("GET /api/setup/status", server.Route{Access: auth.Open}, func(*http.Request, sandbox.Caller) (any, error) {
		return setupStatus{}, nil
	})
}

// setupStatus tells which tools of its own autocoder's server finds beside itself.
// Here they are in the sandboxes: the server has and needs none.
type setupStatus struct {
	ClaudeCLI   bool `json:"claude_cli"`
	Credentials bool `json:"credentials"`
	Node        bool `json:"node"`
	NPM         bool `json:"npm"`
}

// written is an answer that writes itself.
type written interface{ writeJSON(w io.Writer) error }

// add adds a route. All successes have the status 200.
func (d *door) add(pattern string, r server.Route, f func(r *http.Request, c sandbox.Caller) (any, error)) {
	r.Pattern = pattern
	r.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := server.Caller(r.Context())
		c.Door = Kind
		out, err := f(r, c)
		if err != nil {
			writeError(w, r, err)
			return
		}
		if own, ok := out.(written); ok {
			w.Header().Set("Content-Type", "application/json")
			_ = own.writeJSON(w) // a client that is gone needs no answer
			return
		}
		server.WriteJSON(w, http.StatusOK, out)
	})
	d.router.Handle(r)
}
