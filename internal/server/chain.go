package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
)

// scope is what is learnt about a request while it is served.
type scope struct {
	caller sandbox.Caller
	body   *body // nil: there is none

	mu  sync.Mutex // what a request began may outlast it
	err error      // of the server's own doing, for the log
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		return s
	}
	return &scope{} // of nobody's request
}

// chain is what every request goes through before its route is looked for.
func (s *Server) chain() http.Handler {
	return roomy(withRequestID(s.observe(secure(s.cors(s.router)))))
}

// observe bounds, counts and logs a request, and survives its handler.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		sc := &scope{}
		r = r.WithContext(context.WithValue(r.Context(), scopeKey{}, sc))
		a := newAnswer(w, s.opts.WriteTimeout, s.metrics)
		defer a.done()
		sc.body = boundBody(w, r, s.opts.BodyTimeout, s.metrics)
		defer sc.body.leave()
		done := s.flight.begin(r)
		defer done()
		defer a.extend() // for what the server still sends on its own
		defer func() {
			p := recover()
			whole := p == nil
			if p != nil && a.status == 0 && !isAbort(p) {
				WriteError(a, r, NewProblem(CodeInternal, ""))
				whole = true
			}
			s.finish(r, a, sc, time.Since(began), p)
			if !whole {
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to cut an answer that is not whole
			}
		}()
		next.ServeHTTP(a, r)
	})
}

// isAbort reports whether a handler panicked to cut its answer.
func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// finish counts and logs a request that is over.
func (s *Server) finish(r *http.Request, a *answer, sc *scope, took time.Duration, panicked any) {
	if a.status == 0 {
		a.status = http.StatusOK // what the server makes of it
	}
	pattern := "other"
	if r.Pattern != "" {
		pattern = pathOf(r.Pattern)
	}
	s.metrics.request(r.Method, pattern, a.status, took)
	level := slog.LevelInfo
	if sc.caller == (sandbox.Caller{}) && a.status < 400 {
		level = slog.LevelDebug // health checks and the like
	}
	attrs := []slog.Attr{
		slog.String("request_id", RequestID(r.Context())), slog.String("method", sandbox.Clip(r.Method, maxLogged)), slog.String("path", sandbox.Clip(r.URL.Path, maxLogged)),
		slog.Int("status", a.status), slog.Int64("bytes", a.bytes), slog.Duration("took", took), slog.String("from", r.RemoteAddr),
	}
	if sc.caller.Owner != "" {
		attrs = append(attrs, slog.String("owner", sc.caller.Owner), slog.String("key", sc.caller.KeyID))
	}
	if err := sc.failure(); err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", err))
	}
	if panicked != nil && !isAbort(panicked) {
		level = slog.LevelError
		attrs = append(attrs, slog.String("panic", fmt.Sprint(panicked)), slog.String("stack", string(debug.Stack())))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// maxLogged bounds texts in the log that a client chose, in bytes.
const maxLogged = 256

// LogError adds an error to the log's line about the request that ctx belongs
// to. The client hears nothing of it. The first one stays: those behind it are what was
// made of it for the client.
func LogError(ctx context.Context, err error) {
	s := scopeOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *scope) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// browserHeaders keep browsers from reading more into an answer than it says.
var browserHeaders = [...][2]string{
	{"X-Content-Type-Options", "nosniff"},
	{"Referrer-Policy", "no-referrer"},
	{"X-Frame-Options", "DENY"},
	{"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cache-Control", "no-store"},
}

// secure gives every answer the headers for browsers. Pages set a policy of their own.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, b := range browserHeaders {
			h.Set(b[0], b[1])
		}
		next.ServeHTTP(w, r)
	})
}

// ForNoBrowser takes the headers for browsers and their caches out of an answer in a
// protocol that none speaks, whose clients would take them for data.
func ForNoBrowser(h http.Header) {
	for _, b := range browserHeaders {
		h.Del(b[0])
	}
	h.Del("Vary")
}

// corsHeaders are what pages of allowed origins may send and see.
const (
	corsSend = "Authorization, X-API-Key, X-AUTOCODER-API-KEY, Content-Type, X-Request-ID, Idempotency-Key, Last-Event-ID, Range, If-Range, " +
		"X-Grpc-Web, X-User-Agent, Grpc-Timeout, Connect-Protocol-Version, Connect-Timeout-Ms"
	corsSee = "X-Request-ID, Retry-After, Content-Range, Content-Disposition, Accept-Ranges, ETag, X-First-Offset, X-Skipped, " +
		"Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
)

// cors lets pages of allowed origins send requests and see answers.
func (s *Server) cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || auth.IsLocal(r.Context()) || !s.opts.Origins.Allowed(origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", corsSee)
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.opts.Origins.Check(r); err != nil {
			WriteError(w, r, err)
			return
		}
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsSend)
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

// methods that are counted by name; a client can make up others.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

func countedMethod(m string) string {
	if slices.Contains(methods, m) {
		return m
	}
	return "other"
}
