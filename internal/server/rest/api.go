// Package rest is the native REST door, /api/v1. A route is a Go function with
// typed input and output; the OpenAPI document, the page with the documentation
// and the checks of requests follow from the types.
package rest

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// Prefix begins the path of every route of the door.
const Prefix = "/api/v1"

// Keys are what the routes about API keys need; auth.Keyring has it.
type Keys interface {
	CreateOnce(ctx context.Context, made, owner, name string, admin bool) (k auth.Key, secret string, err error)
	List(ctx context.Context) ([]auth.Key, error)
	Revoke(ctx context.Context, id string) (auth.Key, error)
}

// Audit is the audit log; audit.Log is one.
type Audit interface {
	Write(r audit.Record) error
	Query(ctx context.Context, q audit.Query) (audit.Page, error)
	// Err tells why the last record could not be written; nil if it was.
	Err() error
}

// Parts are what the door translates for.
type Parts struct {
	Version   string // of the product, for GET /version
	Keys      Keys
	Audit     Audit
	Sandboxes Sandboxes
	Images    Images
	Volumes   Volumes
	Inside    Inside
	Repeats   Repeats
	Networks  Networks
	Secrets   Secrets
	// Connections have the records of what sandboxes reached.
	Connections Connections
	// Defaults of limits that a request does not name, as the operator set them.
	Defaults sandbox.Limits
	// Draining is closed when the server begins to stop: streams that would go on
	// for ever end then.
	Draining <-chan struct{}
}

// API is the door.
type API struct {
	Parts
	huma huma.API
}

// New adds the door's routes to a router.
func New(router *server.Router, parts Parts) *API {
	useOurErrors()
	a := &API{Parts: parts}
	a.huma = huma.NewAPI(config(), &adapter{router})
	a.addVersion()
	a.addKeys()
	a.addAudit()
	a.addSandboxes()
	a.addStats()
	a.addIsolation()
	a.addEvents()
	a.addImages()
	a.addVolumes()
	a.addNetwork()
	a.addSecrets()
	sessions := newSessions(a, parts.Inside)
	registerExec(a, parts.Inside, sessions)
	registerSessions(a, sessions)
	registerFiles(a, parts.Inside)
	registerPorts(a, parts.Inside)
	a.addDocuments(router)
	return a
}

func config() huma.Config {
	json := huma.Format{Marshal: marshal, Unmarshal: unmarshal}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "agentbox", Version: "1",
				Description: "Sandboxes for agents. Sizes are bytes or texts such as 512m, durations seconds or texts such as 1m30s, times RFC 3339 in UTC. Lists come in pages: limit and cursor, items and next_cursor.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "An API key."},
					"header": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key."},
				},
			},
		},
		Formats: map[string]huma.Format{"application/json": json}, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true,
	}
}

// adapter hands routes to our router rather than to a mux, so that each is
// behind the gate and has its bounds.
type adapter struct{ *server.Router }

// Handle implements huma.Adapter.
func (a *adapter) Handle(op *huma.Operation, h func(huma.Context)) {
	route, _ := op.Metadata[routeKey].(server.Route)
	if route.Pattern == "" {
		route.Pattern = op.Method + " " + op.Path
	}
	route.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(bounded{humago.NewContext(op, r, w)}) })
	a.Router.Handle(route)
}

// bounded keeps the deadline that the router has set.
type bounded struct{ humaContext }

type humaContext = huma.Context // has a method of the name Context

// SetReadDeadline does nothing.
func (bounded) SetReadDeadline(time.Time) error { return nil }

// Unwrap is for humago.Unwrap.
func (b bounded) Unwrap() huma.Context { return b.humaContext }

// What an operation keeps for us: the route, and the document's list of types.
const (
	routeKey    = "route"
	registryKey = "registry"
	privateKey  = "private" // errors repeat nothing of the body
)

// private marks an operation whose body has what must not come back.
func private(op huma.Operation) huma.Operation {
	op.Metadata = map[string]any{privateKey: true}
	return op
}

// route declares a route: its documentation in op, its bounds in r, and what it
// does. A problem of f is answered in the one form of errors.
func route[I, O any](a *API, op huma.Operation, r server.Route, f func(ctx context.Context, c sandbox.Caller, in *I) (*O, error)) {
	op.Path = Prefix + op.Path
	registry := a.huma.OpenAPI().Components.Schemas
	if op.Metadata == nil {
		op.Metadata = map[string]any{}
	}
	op.Metadata[routeKey], op.Metadata[registryKey] = r, registry
	op.MaxBodyBytes = -1 // the router bounds bodies
	op.Middlewares = append(op.Middlewares, a.oneQuery)
	op.Security = []map[string][]string{{"bearer": {}}, {"header": {}}}
	responses := errorResponses(registry)
	maps.Copy(responses, op.Responses)
	op.Responses = responses
	switch r.Access {
	case auth.NeedAdmin:
		op.Description += " Needs an admin key."
	case auth.Open:
		op.Security = []map[string][]string{}
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		c := server.Caller(ctx)
		out, err := f(ctx, c, in)
		var form *FormProblem
		if errors.As(err, &form) {
			return nil, form
		}
		if err != nil {
			return nil, server.Explain(ctx, a.ended(ctx, c, in, err))
		}
		return out, nil
	})
}

// ended tells of the sandbox of a request that stopped or went meanwhile.
func (a *API) ended(ctx context.Context, c sandbox.Caller, in any, err error) error {
	at, ok := in.(interface{ sandboxID() string })
	if !ok {
		return err
	}
	return doors.Ended(ctx, a.Sandboxes, c, at.sandboxID(), err)
}

// schemaOf refers to the schema of a type, for an answer that an operation's types
// don't tell.
func schemaOf[T any](a *API) *huma.Schema {
	t := reflect.TypeFor[T]()
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

var ours sync.Once

// useOurErrors makes huma answer in our form, and take names as they are written.
// It asks through variables of its package, which are set once.
func useOurErrors() {
	ours.Do(func() {
		huma.ValidateStrictCasing = true // a name in two cases would be one name twice
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return problemOf(nil, status, msg, errs) }
		huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
			return problemOf(ctx, status, msg, errs)
		}
	})
}
