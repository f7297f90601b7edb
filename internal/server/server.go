// Package server is the HTTP base that every door stands on: one port for
// HTTP/1.1 and HTTP/2 with and without TLS, a local socket, and for every
// request an id, a gate, bounds, a line in the log, numbers, and one form of
// errors. Doors add routes; a route says who may use it.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
)

// Options are what a server needs. Zero times and sizes have defaults.
type Options struct {
	Gate     Gate
	Origins  *auth.Origins
	Recorder Recorder // of refused authentications; nil: none
	Log      *slog.Logger
	Metrics  *Metrics
	// Ready tells why the server can't do its work yet; nil: it always can.
	// Health checks call it often.
	Ready func(context.Context) error

	// OpenMetrics serves /metrics of the main port to everybody who may come in,
	// without a key.
	OpenMetrics bool
	// NoAuth says that the gate asks for no key. Serve then refuses to listen
	// for other machines.
	NoAuth bool
	// TLS encrypts the main port; nil: it is plain.
	TLS *tls.Config

	HeaderTimeout time.Duration // to send a request's head; 10 s
	BodyTimeout   time.Duration // to send a body; of streams, the longest silence; 30 s
	WriteTimeout  time.Duration // to take a part of an answer; 60 s
	IdleTimeout   time.Duration // of a connection without requests; 2 min
	MaxHeader     int           // bytes of a request's head; 64 KiB
	// Connections bounds those of a port. Half as many files as the process may
	// have open: the rest is for its work, and for the local socket.
	Connections int
	StopGrace   time.Duration // for requests to end when the server stops; 10 s
}

func (o *Options) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.HeaderTimeout, 10*time.Second)
	def(&o.BodyTimeout, 30*time.Second)
	def(&o.WriteTimeout, time.Minute)
	def(&o.IdleTimeout, 2*time.Minute)
	def(&o.StopGrace, 10*time.Second)
	if o.MaxHeader <= 0 {
		o.MaxHeader = 64 << 10
	}
	if o.Connections <= 0 {
		o.Connections = halfOfFiles()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
}

// Server serves the routes of its router.
type Server struct {
	opts     Options
	log      *slog.Logger
	router   *Router
	metrics  *Metrics
	flight   flight
	draining chan struct{}
}

// New returns a server with the routes that every server has: /health,
// /readiness, /metrics, and on the local socket /debug/pprof/.
func New(opts Options) *Server {
	opts.setDefaults()
	s := &Server{opts: opts, log: opts.Log, metrics: opts.Metrics, draining: make(chan struct{})}
	s.router = &Router{mux: http.NewServeMux(), gate: opts.Gate, refusals: newRefusals(opts.Recorder), draining: s.draining, retryAfter: opts.StopGrace}
	s.flight.gauge = s.metrics.inFlight
	s.addOwnRoutes()
	return s
}

// Router takes the doors' routes.
func (s *Server) Router() *Router { return s.router }

// Handler is all of the server but its listeners, for tests of doors.
func (s *Server) Handler() http.Handler { return s.chain() }

// Draining is closed when the server begins to stop. Requests that would go on
// for ever (a stream that follows something) end then.
func (s *Server) Draining() <-chan struct{} { return s.draining }

// CheckNoAuth returns an error for an address that must not be served without
// authentication: one that other machines reach.
func CheckNoAuth(a net.Addr) error {
	if a.Network() == "unix" || auth.IsLoopback(a.String()) {
		return nil
	}
	return fmt.Errorf("refuse to serve %s without authentication: only this machine may be served so; use API keys, or listen on 127.0.0.1", a)
}

// Serve serves the listeners until ctx is done and then stops: readiness is
// off and nothing new is created, requests have the grace to end, and what is
// left after that is cut. It closes the listeners. Serve is called once.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	for _, l := range listeners {
		if !s.opts.NoAuth {
			break
		}
		if err := CheckNoAuth(l.Addr()); err != nil {
			return errors.Join(err, closeAll(listeners))
		}
	}
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	hs := s.httpServer(base)
	g, gctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		if l.Addr().Network() != "unix" {
			l = newVisitors(l, s.opts.Connections)
			if s.opts.TLS != nil {
				l = tls.NewListener(l, hs.TLSConfig)
			}
		}
		g.Go(func() error {
			if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	<-gctx.Done()
	s.stop(hs, func() { cut(&sandbox.DrainingError{RetryAfter: s.opts.StopGrace}) })
	err := g.Wait()
	return errors.Join(err, s.router.refusals.end())
}

// stop ends a server whose time has come, or a listener of which broke.
func (s *Server) stop(hs *http.Server, cut func()) {
	close(s.draining)
	s.log.Info("stopping", "requests", s.flight.count(), "grace", s.opts.StopGrace)
	grace, cancel := context.WithTimeout(context.Background(), s.opts.StopGrace)
	defer cancel()
	s.flight.wait(grace) // still answering, so that clients hear why
	cut()
	last, cancelLast := context.WithTimeout(context.Background(), time.Second)
	defer cancelLast()
	if hs.Shutdown(last) != nil {
		_ = hs.Close() // whoever is still here does not react
	}
}

// ServeMetrics serves /metrics alone, to everybody who reaches the listener,
// until ctx is done. It refuses a listener for other machines.
func (s *Server) ServeMetrics(ctx context.Context, l net.Listener) error {
	if !auth.IsLoopback(l.Addr().String()) {
		return errors.Join(fmt.Errorf("refuse to serve metrics without a key on %s: only this machine may be served so", l.Addr()), l.Close())
	}
	pages, err := auth.NewOrigins(nil, true)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	hs := s.httpServer(ctx)
	hs.ReadTimeout, hs.WriteTimeout = s.opts.BodyTimeout, s.opts.WriteTimeout
	hs.Handler = withRequestID(secure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := pages.Check(r)
		if err == nil && r.URL.Path != "/metrics" {
			err = NewProblem(CodeNotFound, "")
		}
		if err != nil {
			WriteError(w, r, err)
			return
		}
		s.metrics.Handler().ServeHTTP(w, r)
	})))
	defer context.AfterFunc(ctx, func() { _ = hs.Close() })() // it has nothing to lose
	if err := hs.Serve(newVisitors(l, max(1, s.opts.Connections/4))); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// receiveWindow is how much of all bodies of an HTTP/2 connection waits to be read, in
// bytes: four messages of a large file. With net/http's own, half as much, clients wait
// for the server to tell that there is room: measured at a twentieth of an upload.
const receiveWindow = 2 << 20

// farAway is a time to write in that never passes. With one, HTTP/2 keeps a stream's timer
// from its beginning on and stops it with the stream; one that it is first given when its
// client has reset the stream already keeps all of that stream until it fires, and a
// client resets tens of thousands in a second.
const farAway = 100 * 365 * 24 * time.Hour

func (s *Server) httpServer(base context.Context) *http.Server {
	hs := &http.Server{
		Handler: s.chain(), ReadHeaderTimeout: s.opts.HeaderTimeout, IdleTimeout: s.opts.IdleTimeout, MaxHeaderBytes: s.opts.MaxHeader,
		WriteTimeout: farAway, // answer has the time that counts
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), ConnContext: connContext,
		BaseContext: func(net.Listener) context.Context { return base },
		Protocols:   new(http.Protocols), DisableGeneralOptionsHandler: true,
		// A sender that is cut off in the middle of a frame, and one that
		// answers no ping, go too.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: s.opts.BodyTimeout, PingTimeout: s.opts.HeaderTimeout, WriteByteTimeout: s.opts.WriteTimeout,
			MaxReceiveBufferPerConnection: receiveWindow, MaxReceiveBufferPerStream: receiveWindow,
		},
	}
	hs.Protocols.SetHTTP1(true)
	hs.Protocols.SetHTTP2(true)
	hs.Protocols.SetUnencryptedHTTP2(true)
	if s.opts.TLS != nil {
		hs.TLSConfig = s.opts.TLS.Clone()
		hs.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	}
	return hs
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
