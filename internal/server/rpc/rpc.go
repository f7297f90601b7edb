// Package rpc is the door for gRPC, gRPC-Web and Connect: sandbox.v1's
// SandboxService, with the health check and the reflection that gRPC's tools ask
// for. docs/GRPC.md has what it promises.
package rpc

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"connectrpc.com/grpcreflect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"agentbox/internal/auth"
	"agentbox/internal/gen/health/v1/healthv1connect"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/packages"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Kind is the kind of ids that the door gives sandboxes, and looks for first.
const Kind = "session"

// Bounds of messages, in bytes, packed and unpacked.
const (
	// maxMessage: all that sessions are asked for. A budget bounds how many large ones there
	// are.
	maxMessage = 64 << 20
	// maxCall: what no budget counts, and what has lists in it as JSON.
	maxCall = server.MaxBody
	// maxProbe: the health check, which everybody may ask, and reflection: the names of
	// services.
	maxProbe = 4 << 10
)

// Sandboxes is the core; manager.Manager is it.
type Sandboxes interface {
	Ensure(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest) (sb sandbox.Sandbox, made bool, err error)
	Destroy(ctx context.Context, c sandbox.Caller, id string) error
	Use(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) (sandbox.Page, error)
	StartExec(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, key string) (*manager.Exec, error)
	Install(ctx context.Context, c sandbox.Caller, id string, with packages.Tool, names []string, out client.Output) (*manager.Exec, error)
	Acquire(ctx context.Context, c sandbox.Caller, id string) (*manager.Lease, error)
}

// Audit is the audit log; audit.Log is one.
type Audit interface {
	server.Recorder
	// Err tells why the last record could not be written; nil if it was.
	Err() error
}

// Session is what a session has whose caller does not say.
type Session struct {
	Image string
	// User and Workdir replace the image's; empty: they don't.
	User, Workdir string
	Limits        sandbox.Limits
	// IdleTimeout and Lifetime, as in a request of the core.
	IdleTimeout, Lifetime time.Duration
	// Hosts are the entries of the network's allow-list.
	Hosts []string
	// MaxExec is the longest that a command may take; 0: there is no maximum.
	MaxExec time.Duration
}

// Parts are what the door translates for.
type Parts struct {
	Sandboxes Sandboxes
	Audit     Audit
	Session   Session
	// Ready tells why the server can't do its work now, for health checks.
	Ready func(context.Context) error
	// Draining is closed when the server begins to stop.
	Draining <-chan struct{}
	// LargeWait is how long a large message waits for the memory that others take.
	// Default 10 s.
	LargeWait time.Duration
}

type service struct {
	Parts
	downloads downloads
}

// New adds the door's routes to a router.
func New(router *server.Router, parts Parts) {
	s := &service{Parts: parts, downloads: make(downloads, maxLarge)}
	rpcs := connect.NewServer()
	sandboxv1connect.RegisterSandboxServiceHandler(rpcs, s)
	healthv1connect.RegisterHealthHandler(rpcs, &health{parts})
	grpcreflect.Register(rpcs)
	// Packed messages are read; answers are sent as they are, since clients are near
	// and offer by themselves to unpack, which costs more than it saves.
	connecthttp.Mount(&routes{router, connecthttp.NewErrorWriter(), newBudget(cmp.Or(parts.LargeWait, largeWait))}, rpcs, connecthttp.WithConditionalOptions(bounds), connecthttp.WithCompressMinBytes(math.MaxInt),
		connecthttp.WithCodecs(newCodec(), jsonCodec{connectproto.NewJSONCodec()}))
}

// largest is the bound of a procedure's messages, in bytes.
func largest(procedure string) int {
	if isSession(procedure) {
		return maxMessage
	}
	return maxProbe
}

func isSession(procedure string) bool {
	return strings.HasPrefix(procedure, "/"+sandboxv1connect.SandboxServiceName+"/")
}

// answersOnce reports whether a procedure of sessions answers with one message.
func answersOnce(procedure string) bool {
	m := sandboxv1.File_sandbox_v1_sandbox_proto.Services().Get(0).Methods().ByName(protoreflect.Name(path.Base(procedure)))
	return m != nil && !m.IsStreamingServer() // nil: the path that refuses unknown ones
}

// inOne lets gRPC's answer of one message go out with its end. connect flushes it after the
// message, and each part that HTTP/2 sends costs both ends the way through their goroutines.
func inOne(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			w = struct{ http.ResponseWriter }{w}
		}
		next.ServeHTTP(w, r)
	})
}

// isGRPC reports whether a request is of gRPC itself, not of gRPC-Web: of its type, and with
// HTTP/2, which its trailers need.
func isGRPC(r *http.Request) bool {
	_, ok := codecOf(kindOf(r.Header), grpcKind)
	return ok && r.ProtoMajor > 1
}

// inForm gives gRPC's answers no headers for browsers, which its clients read as metadata,
// and gRPC-Web its text form.
func inForm(next http.Handler) http.Handler {
	next = inText(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			server.ForNoBrowser(w.Header())
		}
		next.ServeHTTP(w, r)
	})
}

func bounds(spec connect.Spec) []connecthttp.Option {
	return []connecthttp.Option{connecthttp.WithReadMaxBytes(largest(spec.Procedure))}
}

// isLong reports whether what is sent for a call may take any time: several messages,
// or a large one.
func isLong(procedure string) bool {
	switch procedure {
	case sandboxv1connect.SandboxServiceWriteFileProcedure, sandboxv1connect.SandboxServiceUploadFileProcedure:
		return true
	}
	return strings.HasPrefix(procedure, "/grpc.reflection.")
}

// maxFrame bounds what a message has around it, in bytes: the frame, and what packing
// adds to what can't be packed.
const maxFrame = 4 << 10

// routes hands each procedure to our router, so that it is behind the gate.
type routes struct {
	*server.Router
	errors *connecthttp.ErrorWriter
	budget *budget
}

// Handle implements connecthttp.ServeMux.
func (rs *routes) Handle(procedure string, h http.Handler) {
	if isSession(procedure) {
		if answersOnce(procedure) {
			h = inOne(h)
		}
		h = rs.budget.weigh(h)
	}
	route := server.Route{
		Pattern: http.MethodPost + " " + procedure, Handler: inForm(h),
		Stream:  isLong(procedure),                       // connect bounds each message
		MaxBody: textSize(largest(procedure) + maxFrame), // in the longest form
		Coded:   true,                                    // connect reads them
		Creates: strings.HasSuffix(procedure, "/CreateSession"),
		Refuse: func(w http.ResponseWriter, r *http.Request, err error) {
			maps.Copy(w.Header(), server.ProblemOf(err).GetHeaders())
			inForm(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if e := rs.errors.Write(w, r, status(r.Context(), err)); e != nil {
					server.LogError(r.Context(), e)
				}
			})).ServeHTTP(w, r)
		},
	}
	if procedure == healthv1connect.HealthCheckProcedure {
		route.Access = auth.Open // probes have no key
	}
	rs.Router.Handle(route)
}

// caller is who sent the request, with the door's kind of ids.
func caller(ctx context.Context) sandbox.Caller {
	c := server.Caller(ctx)
	c.Door = Kind
	return c
}
