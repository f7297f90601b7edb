package server

import (
	"net/http"
	"net/http/pprof"

	"agentbox/internal/auth"
)

// addOwnRoutes adds what concerns the server and no door.
func (s *Server) addOwnRoutes() {
	status := func(w http.ResponseWriter, code int, text string) {
		WriteJSON(w, code, map[string]string{"status": text})
	}
	s.router.Handle(Route{Pattern: "GET /health", Access: auth.Open, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusOK, "ok")
	})})
	s.router.Handle(Route{Pattern: "GET /readiness", Access: auth.Open, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.router.isDraining() {
			status(w, http.StatusServiceUnavailable, "stopping")
			return
		}
		if err := s.opts.Ready(r.Context()); err != nil {
			LogError(r.Context(), err)
			status(w, http.StatusServiceUnavailable, "not ready")
			return
		}
		status(w, http.StatusOK, "ready")
	})})
	numbers := auth.NeedAdmin
	if s.opts.OpenMetrics {
		numbers = auth.Open
	}
	s.router.Handle(Route{Pattern: "GET /metrics", Access: numbers, Handler: s.metrics.Handler()})
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	} {
		s.router.Handle(Route{Pattern: pattern, Access: auth.NeedAdmin, Local: true, Handler: h})
	}
}
