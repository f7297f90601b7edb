package server

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
)

// Gate decides about each request; auth.Gate is one.
type Gate interface {
	Enter(r *http.Request, a auth.Access) (sandbox.Caller, error)
	Stay(ctx context.Context, c sandbox.Caller) (stay context.Context, leave func(), err error)
}

// Route is one thing that the server can do.
type Route struct {
	// Pattern is a method and a path, as http.ServeMux takes them.
	Pattern string
	// Access is who may; without it, everybody with a key.
	Access auth.Access
	// Stream: bodies have any length, in both directions, and only silence
	// ends them. Else a request's body is bounded in size and time.
	Stream bool
	// MaxBody bounds the body in bytes. 0: MaxBody.
	MaxBody int64
	// Coded: the handler reads Content-Encoding. Elsewhere bodies that have one are
	// refused: whoever judges them before us may read something else in them.
	Coded bool
	// Creates: refused once the server is about to stop.
	Creates bool
	// Local: on the local socket only; elsewhere there is no such route.
	Local bool
	// Refuse answers a request that Handler does not get, in the form of the route's
	// door; nil: in that of [WriteError].
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	// Handler finds its caller with Caller.
	Handler http.Handler
}

// answer answers a request that was refused.
func (route *Route) answer(w http.ResponseWriter, r *http.Request, err error) {
	if route.Refuse == nil {
		WriteError(w, r, err)
		return
	}
	route.Refuse(w, r, err)
}

// MaxBody is the default bound of a request's body, in bytes. It is small
// because JSON grows severalfold in memory; routes that carry data say more.
const MaxBody = 1 << 20

// MaxDataBody is the bound of bodies that carry data in JSON, in bytes. More than
// that goes through routes whose bodies are the data, and are held by nobody.
const MaxDataBody = 16 << 20

// Router has all routes. They are added before the first request.
type Router struct {
	mux      *http.ServeMux
	routes   []Route
	gate     Gate
	refusals *refusals
	draining <-chan struct{}
	// retryAfter is told to those who come while the server stops.
	retryAfter time.Duration
}

// Handle adds a route. A pattern that clashes with another is a mistake in the
// program, and panics as http.ServeMux does.
func (rt *Router) Handle(route Route) {
	rt.routes = append(rt.routes, route)
	rt.mux.Handle(route.Pattern, rt.enter(route))
}

// Routes are all routes, sorted by pattern.
func (rt *Router) Routes() []Route {
	return slices.SortedFunc(slices.Values(rt.routes), func(a, b Route) int { return strings.Compare(a.Pattern, b.Pattern) })
}

// enter puts a route behind the gate.
func (rt *Router) enter(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access := route.Access
		if route.Local && !auth.IsLocal(r.Context()) {
			access = auth.NeedKey // as for any path that is no route
		}
		caller, err := rt.gate.Enter(r, access)
		if err != nil {
			rt.refuse(w, r, &route, err)
			return
		}
		scopeOf(r.Context()).caller = caller
		ctx, leave, err := rt.gate.Stay(r.Context(), caller)
		if err != nil {
			rt.refuse(w, r, &route, err)
			return
		}
		defer leave()
		if caller.Owner != "" {
			defer visitorOf(ctx).welcome()()
		}
		if err := rt.admit(r, route); err != nil {
			route.answer(w, r, err)
			return
		}
		defer route.bound(ctx, w, r)()
		route.Handler.ServeHTTP(w, r.WithContext(context.WithValue(ctx, callerKey{}, caller)))
	})
}

// admit refuses what a route can't do for anybody.
func (rt *Router) admit(r *http.Request, route Route) error {
	switch {
	case route.Local && !auth.IsLocal(r.Context()):
		return NewProblem(CodeNotFound, "")
	case route.Creates && rt.isDraining():
		return NewProblem(CodeUnavailable, "the server is about to stop").RetryAfter(rt.retryAfter)
	case !route.Stream && r.ContentLength > route.maxBody():
		return NewProblem(CodeTooLarge, "")
	case !route.Coded && r.ContentLength != 0 && isCoded(r.Header):
		return NewProblem(CodeUnsupportedMedia, "the body must come without a Content-Encoding")
	}
	return nil
}

// isCoded reports whether a body is not what it stands for, but a coded form of it.
func isCoded(h http.Header) bool {
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}

func (rt *Router) isDraining() bool {
	select {
	case <-rt.draining:
		return true
	default:
		return false
	}
}

// ServeHTTP finds the route of a request. Whoever has no key does not learn
// which routes there are.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isCanonical(r.URL.Path) || r.Method == http.MethodTrace || r.Method == http.MethodConnect {
		rt.unrouted(w, r, NewProblem(CodeNotFound, ""))
		return
	}
	h, pattern := rt.mux.Handler(r)
	if pattern != "" {
		rt.mux.ServeHTTP(w, r)
		return
	}
	probe := probe{header: http.Header{}}
	h.ServeHTTP(&probe, r) // what the mux would say: not found, or other methods are allowed
	p := NewProblem(CodeNotFound, "")
	if probe.status == http.StatusMethodNotAllowed {
		p = NewProblem(CodeMethodNotAllowed, "")
		p.header["Allow"] = probe.header["Allow"]
	}
	rt.unrouted(w, r, p)
}

func (rt *Router) unrouted(w http.ResponseWriter, r *http.Request, p *Problem) {
	if _, err := rt.gate.Enter(r, auth.NeedKey); err != nil {
		rt.refuse(w, r, &Route{}, err)
		return
	}
	WriteError(w, r, p)
}

// refuse answers somebody who may not, and records it.
func (rt *Router) refuse(w http.ResponseWriter, r *http.Request, route *Route, err error) {
	p := ProblemOf(err)
	if p.Code == CodeUnauthenticated || p.Code == CodeForbidden {
		if err := rt.refusals.record(r, p); err != nil {
			LogError(r.Context(), err)
		}
	}
	route.answer(w, r, p)
}

// isCanonical reports whether a path has one reading only. Others are not
// cleaned and tried again: who judges it before us may have read it otherwise.
func isCanonical(p string) bool {
	clean := path.Clean(p)
	return strings.HasPrefix(p, "/") && (p == clean || p == clean+"/" && clean != "/") && !strings.Contains(p, "\x00")
}

// probe is an answer that nobody gets.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }
