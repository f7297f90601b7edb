package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/pump"
)

// Ports are the TCP ports of the sandbox.
type Ports interface {
	// Listening lists at most limit sockets that wait for connections, by port
	// and address; more tells that there are others.
	Listening(ctx context.Context, limit int) (list []*guestv1.ListeningPort, more bool, err error)
	// Dial connects to a port on the loopback interface. Nobody listens:
	// syscall.ECONNREFUSED.
	Dial(ctx context.Context, port uint16) (PortConn, error)
}

// PortConn is a connection that can be closed in one direction.
type PortConn interface {
	net.Conn
	CloseWrite() error
}

const (
	// maxPorts is how many ports a list has.
	maxPorts = 1_000
	// maxPortConns is how many connections to ports a session may have. It is
	// less than what the host bears of streams that the guest does not finish
	// (guest.MaxGuestStreams).
	maxPortConns = 224
	// dialTimeout is how long a server in the sandbox may take to accept: its
	// queue may be full for a while.
	dialTimeout = 10 * time.Second
)

// ports answers the calls about ports.
type ports struct {
	ports Ports
	holds func(port uint16) bool // a port is the agent's own, which no host may use

	mu     sync.Mutex
	conns  map[string]func() // how to end each connection, by the host's id for it
	closed bool
}

func newPorts(p Ports, holds func(port uint16) bool) *ports {
	return &ports{ports: p, holds: holds, conns: map[string]func(){}}
}

// close ends all connections: the session is over.
func (s *ports) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, end := range s.conns {
		end()
	}
}

var errNoPorts = guest.Errorf(errdefs.ErrNotImplemented, "this sandbox has no network")

func (s *ports) list(ctx context.Context, _ *guestv1.ListPortsRequest) (*guestv1.ListPortsResponse, error) {
	if s.ports == nil {
		return nil, errNoPorts
	}
	list, more, err := s.ports.Listening(ctx, maxPorts)
	if err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	return &guestv1.ListPortsResponse{Ports: list, Truncated: more}, nil
}

// serve answers /ports: it takes over the stream for connections, each a stream of
// a multiplexer on it.
func (s *ports) serve(w http.ResponseWriter, r *http.Request) {
	if err := mustUpgrade(r); err != nil {
		guest.WriteError(w, err)
		return
	}
	conn, rw, ok := takeOver(w)
	if !ok {
		return
	}
	defer conn.Close()
	mux, err := guest.NewPortMux(conn, rw.Reader, false)
	if err != nil {
		return
	}
	defer mux.Close()
	calls := http.NewServeMux()
	calls.HandleFunc("POST "+guest.PathPort, s.connect)
	calls.HandleFunc("DELETE "+guest.PathPort, s.drop)
	srv := &http.Server{Handler: calls}
	defer srv.Close()
	_ = srv.Serve(mux) // until the stream ends
}

// mustUpgrade refuses a request for a raw stream that does not say so.
func mustUpgrade(r *http.Request) error {
	if r.Header.Get("Upgrade") == guest.Upgrade {
		return nil
	}
	return guest.Errorf(errdefs.ErrInvalidArgument, "the stream must be upgraded to %s", guest.Upgrade)
}

// connect answers /port: it connects, takes over the stream and passes bytes
// both ways until one end is gone or both directions have ended.
func (s *ports) connect(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	id := r.URL.Query().Get("id")
	if err := s.enter(id, cancel); err != nil {
		guest.WriteError(w, err)
		return
	}
	defer s.leave(id)
	c, err := s.dial(ctx, r)
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	defer c.Close()
	conn, rw, ok := takeOver(w)
	if !ok {
		return
	}
	defer conn.Close()
	// Hijacking freed the request's context of the stream: it ends by the id.
	stop := context.AfterFunc(ctx, func() {
		abort(c)
		_ = conn.SetDeadline(past)
	})
	defer stop()
	pass(guest.NewDuplex(conn, rw.Reader), c)
}

// enter takes a place among the connections.
func (s *ports) enter(id string, end func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return guest.Errorf(errdefs.ErrUnavailable, "the session has ended")
	case !validID(id):
		return guest.Errorf(errdefs.ErrInvalidArgument, "id must be 1 to 64 of a-z, 0-9 and -")
	case s.conns[id] != nil:
		return guest.Errorf(errdefs.ErrAlreadyExists, "there is a connection %s", id)
	case len(s.conns) >= maxPortConns:
		return guest.Errorf(errdefs.ErrResourceExhausted, "%d connections to ports of the sandbox are open already", maxPortConns)
	}
	s.conns[id] = end
	return nil
}

func (s *ports) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, id)
}

// drop ends a connection whose host's end is gone. The end of its stream says
// the same, but goes unheard while bytes before it wait for the server.
func (s *ports) drop(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	end := s.conns[r.URL.Query().Get("id")]
	s.mu.Unlock()
	if end != nil {
		end()
	}
	w.WriteHeader(http.StatusNoContent)
}

// abort closes a connection so that what was cut does not look like an end.
func abort(c PortConn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// dial connects.
func (s *ports) dial(ctx context.Context, r *http.Request) (PortConn, error) {
	if err := mustUpgrade(r); err != nil {
		return nil, err
	}
	q := paramsOf(r)
	port := q.number("port", 1<<16-1, 10)
	if q.err == nil && port == 0 {
		q.err = guest.Errorf(errdefs.ErrInvalidArgument, "port: a number from 1 to 65535 is needed")
	}
	if q.err != nil {
		return nil, q.err
	}
	if s.ports == nil {
		return nil, errNoPorts
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var c PortConn
	err := error(syscall.ECONNREFUSED)
	if !s.holds(uint16(port)) {
		c, err = s.ports.Dial(ctx, uint16(port))
	}
	if err == nil && s.holds(uint16(port)) { // since then
		abort(c)
		err = syscall.ECONNREFUSED
	}
	if err == nil {
		return c, nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("nothing listens on port %d of the sandbox: %w", port, err)
	}
	return nil, fmt.Errorf("connect to port %d of the sandbox: %w", port, err)
}

// hostConn is the host's end of a connection with a program in the sandbox.
type hostConn interface {
	io.ReadWriter
	CloseWrite() error
	Fail(why error) error
	SetWriteDeadline(t time.Time) error
	WaitGone()
}

// pumps move what is passed. Few connections may have a large piece each: together
// 1 MiB of the sandbox's memory.
var pumps = pump.New(4)

// pass moves bytes between the host and a program in the sandbox.
func pass(host hostConn, program PortConn) {
	done := make(chan error, 1)
	go func() {
		// The host's end is gone, at once or at the end: so is the program's.
		defer program.Close()
		err := pumps.Copy(program, host)
		defer func() { done <- err }()
		if err != nil {
			abort(program)
			_ = host.SetWriteDeadline(past)
			return
		}
		_ = program.CloseWrite()
		host.WaitGone()
		_ = host.SetWriteDeadline(past)
	}()
	err := pumps.Copy(host, program)
	if err != nil {
		_ = host.Fail(err)
	} else {
		_ = host.CloseWrite()
	}
	// Of a connection that the program reset, only one of the two hears so; the other one
	// may have seen an end.
	if err := <-done; err != nil {
		_ = host.Fail(err)
	}
}
