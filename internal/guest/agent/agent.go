package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Options say what an agent works with.
type Options struct {
	Launcher Launcher
	Files    Files
	// Ports of the sandbox. Nil: it has none.
	Ports Ports
	// Loopback is where programs reach the outside. Nil: they can't.
	Loopback Loopback
	// Build names the agent's build in HelloReply.
	Build string
	// Hello is told each accepted Hello, to take over host name and randomness.
	// Nil: nothing to do. Errors are the implementation's to handle: a session
	// begins whatever becomes of it.
	Hello func(*guestv1.Hello)
	// Idle is told when no command has run for some seconds; a time to give
	// memory back. Nil: nothing to do.
	Idle func()
}

// Agent serves the guest protocol. It outlives its sessions.
type Agent struct {
	opt     Options
	execs   *execs
	outside *outside
	api     *processAPI
	started time.Time

	mu    sync.Mutex
	epoch uint64
	cur   *session
}

// New makes an agent that has no session yet.
func New(o Options) *Agent {
	execs := newExecs(o.Launcher, o.Idle)
	return &Agent{opt: o, execs: execs, outside: newOutside(o.Loopback), api: newProcessAPI(execs, o), started: time.Now()}
}

// Close ends the session and all commands.
func (a *Agent) Close() {
	a.Reset()
	_ = a.outside.configure(nil) // nobody is there to be told of an error
	a.api.close()
	a.execs.close()
}

// Reset drops the session and forgets the epoch: whoever started or restored
// the sandbox begins anew.
func (a *Agent) Reset() {
	a.mu.Lock()
	old := a.cur
	a.cur, a.epoch = nil, 0
	a.mu.Unlock()
	if old != nil {
		old.drop()
	}
}

// helloTimeout is how long a host may take to send Hello on a stream that it
// has opened.
const helloTimeout = 30 * time.Second

// Serve runs one session on conn and returns when it has ended and conn is
// closed. The host has proved itself on conn. adopted streams are those that
// must be gone before a checkpoint.
func (a *Agent) Serve(conn net.Conn, adopted bool) error {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	hello, err := guest.ReadHello(conn)
	if err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Time{})
	s := &session{agent: a, adopted: adopted, conn: conn, ready: make(chan struct{}), ports: newPorts(a.opt.Ports, a.api.holds)}
	reply := a.greet(hello, s)
	if err := guest.WriteReply(conn, reply); err != nil {
		a.leave(s)
		return err
	}
	if reply.GetVersion() == 0 {
		return errors.New("begin session: " + reply.GetError())
	}
	defer a.leave(s)
	return s.serve()
}

// greet decides about a Hello. If it is accepted, s is the session from now on
// and the one before has ended.
func (a *Agent) greet(h *guestv1.Hello, s *session) *guestv1.HelloReply {
	r := &guestv1.HelloReply{AgentBuild: a.opt.Build}
	v := guest.ChooseVersion(h.GetVersions())
	a.mu.Lock()
	switch {
	case v == 0:
		r.Error = fmt.Sprintf("the agent speaks versions %v, the host %v", guest.Versions(), h.GetVersions())
	case h.GetEpoch() < a.epoch, h.GetEpoch() == a.epoch && a.cur != nil:
		r.Error = fmt.Sprintf("a session of epoch %d came before that of epoch %d", a.epoch, h.GetEpoch())
	default:
		r.Version = v
	}
	var old *session
	if r.Version != 0 {
		old, a.cur, a.epoch = a.cur, s, h.GetEpoch()
	}
	r.Epoch = a.epoch
	a.mu.Unlock()
	if r.Version == 0 {
		return r
	}
	if old != nil {
		old.drop()
	}
	a.accept(h, r)
	return r
}

func (a *Agent) accept(h *guestv1.Hello, r *guestv1.HelloReply) {
	if c := h.GetConfig(); c != nil {
		if err := a.configure(c); err != nil {
			r.Error = err.Error()
		}
	}
	if a.opt.Hello != nil {
		a.opt.Hello(h)
	}
	room := guest.MaxHello - 64<<10
	for _, e := range a.execs.forHost() {
		i := e.info()
		if room -= proto.Size(i) + 8; room < 0 {
			break
		}
		r.Execs = append(r.Execs, i)
	}
}

func (a *Agent) configure(c *guestv1.GuestConfig) error {
	a.execs.configure(c)
	if err := a.opt.Launcher.Configure(c); err != nil {
		return fmt.Errorf("apply the sandbox's limits: %w", err)
	}
	return errors.Join(a.outside.configure(c.GetNetwork()), a.api.configure(c))
}

func (a *Agent) leave(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cur == s {
		a.cur = nil
	}
}

// OpenStream opens a stream to the host of the current session; on it the guest
// speaks HTTP/1.1 as a client.
func (a *Agent) OpenStream() (net.Conn, error) {
	a.mu.Lock()
	s := a.cur
	a.mu.Unlock()
	if s == nil {
		return nil, guest.Errorf(errdefs.ErrUnavailable, "no host is connected")
	}
	return s.open()
}

// session is one connection of the host.
type session struct {
	agent   *Agent
	adopted bool
	conn    net.Conn
	ports   *ports

	ready   chan struct{} // closed when mux is set
	mu      sync.Mutex
	mux     *yamux.Session
	dropped bool
}

// serve handles the host's streams until the session ends.
func (s *session) serve() error {
	s.mu.Lock()
	if s.dropped {
		s.mu.Unlock()
		return errors.New("begin session: another one took over")
	}
	mux, err := guest.NewMux(s.conn, false)
	s.mux = mux
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer mux.Close()
	close(s.ready)
	// No time limits: the host is trusted, what it opens ends with the session,
	// and to set a deadline costs system calls while the clock is one.
	srv := &http.Server{Handler: s.handler()}
	defer srv.Close()
	defer s.ports.close()
	err = srv.Serve(mux)
	if mux.IsClosed() {
		return nil // however it ended, that is how sessions end
	}
	return fmt.Errorf("serve session: %w", err)
}

// drop ends the session at once.
func (s *session) drop() {
	s.mu.Lock()
	s.dropped = true
	mux := s.mux
	s.mu.Unlock()
	if mux != nil {
		mux.Close()
		return
	}
	s.conn.Close()
}

func (s *session) open() (net.Conn, error) {
	select {
	case <-s.ready:
	case <-time.After(firstFrame):
		return nil, guest.Errorf(errdefs.ErrUnavailable, "the session has not begun")
	}
	c, err := s.mux.Open()
	if err != nil {
		return nil, guest.Errorf(errdefs.ErrUnavailable, "open a stream to the host: %v", err)
	}
	return c, nil
}
