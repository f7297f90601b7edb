package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Options say who the host is and what it serves.
type Options struct {
	SandboxID, Hostname string
	// Epoch must be higher than that of every session before.
	Epoch uint64
	// Config is what the agent must know. Nil: the agent keeps what it has.
	Config *guestv1.GuestConfig
	// Handler serves the streams that the guest opens. They come from inside
	// the sandbox: it must bound what it reads. Nil: none but probes.
	Handler http.Handler
	// Tunnel serves the connections that programs in the sandbox make to the
	// outside, as Session.ServeTunnel does, without which there are none. When it
	// can't begin, New fails; for a sandbox with an older agent, leave it out.
	Tunnel Tunnel
	// TakeTimeout is how long the guest may take nothing of what there is for it, bytes
	// or new streams, before the session ends; 0: two minutes. Root in the sandbox can
	// freeze the agent, and no deadline holds for a call that waits for that. A starved
	// agent takes the little that can be on its way within seconds, and one that goes on
	// later gets a new session.
	TakeTimeout time.Duration
}

// takeTimeout is the default of Options.TakeTimeout.
const takeTimeout = 2 * time.Minute

// Session is one connection to the agent of a sandbox. Its methods may be
// called from any goroutine.
type Session struct {
	streams
	conn  *hostConn
	reply *guestv1.HelloReply
	tasks sync.WaitGroup // goroutines of the session
	srv   *http.Server

	ports   portStreams
	drops   chan struct{} // places of drops of connections
	closing atomic.Bool
	done    chan struct{}
	err     error // why the session ended; set before done is closed
}

const (
	// helloTimeout bounds the answer to Hello when the context has no earlier
	// deadline: a restored guest under load needs well under a second.
	helloTimeout = 30 * time.Second
	// headTimeout bounds the head of a request that the guest sends.
	headTimeout = 30 * time.Second
	maxHead     = 64 << 10
)

// New begins a session on conn, to which the sandbox's key was sent or proved.
// The session owns conn from now on and closes it, also when New fails.
func New(ctx context.Context, conn net.Conn, o Options) (*Session, error) {
	reply, err := hello(ctx, conn, o)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if e, ok := conn.(interface{ Established() }); ok {
		e.Established() // the back end may end the stream before
	}
	s := &Session{conn: &hostConn{Conn: conn, takes: cmp.Or(o.TakeTimeout, takeTimeout)}, reply: reply, ports: newPortStreams(), drops: make(chan struct{}, maxDrops), done: make(chan struct{})}
	s.takes = s.conn.takes
	s.mux, err = guest.NewMux(s.conn, true)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.srv = &http.Server{
		Handler:           s.guestHandler(o.Handler),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       headTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          discardLog,
	}
	s.tasks.Go(func() { _ = s.srv.Serve(&listener{s}) })
	s.tasks.Go(s.watch)
	if o.Tunnel == nil {
		return s, nil
	}
	if err := s.ServeTunnel(ctx, o.Tunnel); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func hello(ctx context.Context, conn net.Conn, o Options) (*guestv1.HelloReply, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(helloTimeout))
	m := &guestv1.Hello{
		Versions: guest.Versions(), Epoch: o.Epoch, SandboxId: o.SandboxID, Hostname: o.Hostname,
		WallTimeNs: time.Now().UnixNano(), Seed: make([]byte, 32), Config: o.Config,
	}
	_, _ = rand.Read(m.Seed)
	err := guest.WriteHello(conn, m)
	var reply *guestv1.HelloReply
	if err == nil {
		reply, err = guest.ReadReply(conn)
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("greet the guest agent: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("greet the guest agent: %w: %w", errdefs.ErrUnavailable, err)
	case guest.ChooseVersion([]uint32{reply.GetVersion()}) == 0:
		return nil, fmt.Errorf("greet the guest agent: %w: it refused: %.500q", errdefs.ErrFailedPrecondition, reply.GetError())
	}
	if !stop() {
		return nil, fmt.Errorf("greet the guest agent: %w", context.Cause(ctx))
	}
	return reply, conn.SetDeadline(time.Time{})
}

// Reply is what the agent answered to Hello.
func (s *Session) Reply() *guestv1.HelloReply { return s.reply }

// watch sets the session's end.
func (s *Session) watch() {
	<-s.mux.CloseChan()
	switch {
	case s.closing.Load():
		s.err = nil
	case s.conn.dropped.Load():
		s.err = fmt.Errorf("%w: the sandbox ended or another session took over", errdefs.ErrUnavailable)
	default:
		s.err = fmt.Errorf("%w: the guest's stream broke", errdefs.ErrUnavailable)
	}
	close(s.done)
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err tells why the session ended: nil while it lives and after Close.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends the session. Commands go on in the guest; those that are not to
// outlive their client are for the caller to kill before.
func (s *Session) Close() error {
	s.closing.Store(true)
	err := s.mux.Close()
	err = errors.Join(err, s.srv.Close())
	s.ports.close()
	s.tasks.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Quiesce prepares the guest for a checkpoint and ends the session. When it
// returns nil, no stream of this session is open in the guest; after an error
// the sandbox must not be checkpointed.
func (s *Session) Quiesce(ctx context.Context) error {
	s.closing.Store(true) // the guest may end the session before its answer is read
	adopted, err := s.quiesce(ctx)
	if err == nil && adopted && !s.conn.dropped.Load() {
		err = fmt.Errorf("%w: it still holds the stream", errdefs.ErrUnavailable)
	}
	if err != nil {
		_ = s.Close()
		return fmt.Errorf("quiesce the guest: %w", err)
	}
	return s.Close()
}

// quiesce asks, and waits for the end of the session in the guest. On an adopted
// stream that is end-of-file, the proof that the guest dropped its socket; on the
// donated one it is guest.SessionEnd, which is no frame of the multiplexer. A
// checkpoint before that would hold a reader that takes the next session's key.
// Until then nothing more is written: the stream of the request stays open.
func (s *Session) quiesce(ctx context.Context) (adopted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	r, err := s.do(ctx, http.MethodPost, guest.UnaryPrefix+"Quiesce", nil, nil, nil)
	if err != nil {
		return false, err
	}
	defer r.close()
	a := new(guestv1.QuiesceResponse)
	if err := readAnswer(ctx, r, a, maxErrorBody); err != nil {
		return false, err
	}
	select {
	case <-s.mux.CloseChan():
		return a.GetAdopted(), nil
	case <-ctx.Done():
		return false, fmt.Errorf("%w: it goes on with the session", errdefs.ErrUnavailable)
	}
}

// quiesceTimeout is how long the guest may take to answer and to drop its
// socket; it needs a millisecond.
const quiesceTimeout = 15 * time.Second

// hostConn remembers whether the guest dropped the stream, and breaks when it takes
// nothing.
type hostConn struct {
	net.Conn
	takes   time.Duration // how long that may last
	dropped atomic.Bool
}

func (c *hostConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		c.dropped.Store(true)
	}
	return n, err
}

func (c *hostConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.takes)) // of a closed one the write says so
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		c.dropped.Store(true)
	}
	return n, err
}

var past = time.Unix(1, 0)
