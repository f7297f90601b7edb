package toyos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

var _ agent.Ports = (*System)(nil)

// listener is a port on which a process waits, or the agent.
type listener struct {
	owner *proc           // nil: the agent
	ctx   context.Context // ends when nobody waits any more
	queue chan *socket
}

// Listening lists the ports on which processes wait.
func (s *System) Listening(_ context.Context, limit int) (list []*guestv1.ListeningPort, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for port, l := range s.ports {
		if l.owner == nil {
			continue
		}
		list = append(list, &guestv1.ListeningPort{
			Address: "127.0.0.1", Port: uint32(port), Uid: l.owner.cred.uid,
			Pid: int32(l.owner.pid), Process: []byte(l.owner.argv[0]),
		})
	}
	slices.SortFunc(list, func(a, b *guestv1.ListeningPort) int { return cmp.Compare(a.Port, b.Port) })
	return list[:min(len(list), limit)], len(list) > limit, nil
}

// Dial connects to a port.
func (s *System) Dial(ctx context.Context, port uint16) (agent.PortConn, error) {
	s.mu.Lock()
	l := s.ports[port]
	s.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("connect: %w", syscall.ECONNREFUSED)
	}
	ours, theirs := socketPair()
	select {
	case l.queue <- theirs:
		return ours, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("connect: %w", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// socket is one end of a connection.
type socket struct {
	in     *pipeReader
	out    *pipeWriter
	ctx    context.Context // ends when this end is closed
	cancel context.CancelFunc
	once   sync.Once
	shut   sync.Once
}

func socketPair() (a, b *socket) {
	r1, w1 := newPipe()
	r2, w2 := newPipe()
	return newSocket(r1, w2), newSocket(r2, w1)
}

func newSocket(r *pipeReader, w *pipeWriter) *socket {
	s := &socket{in: r, out: w}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *socket) Read(b []byte) (int, error)  { return s.in.read(s.ctx, b) }
func (s *socket) Write(b []byte) (int, error) { return s.out.write(s.ctx, b) }

// CloseWrite is end-of-file for the other end.
func (s *socket) CloseWrite() error {
	s.shut.Do(s.out.close)
	return nil
}

func (s *socket) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.in.close()
	})
	return s.CloseWrite()
}

func (*socket) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*socket) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*socket) SetDeadline(time.Time) error      { return nil }
func (*socket) SetReadDeadline(time.Time) error  { return nil }
func (*socket) SetWriteDeadline(time.Time) error { return nil }

// cmdEchod is a server: echod PORT sends back what it is sent, each connection
// until its end.
func cmdEchod(p *proc, argv []string) int {
	if len(argv) != 2 {
		return p.fail(2, "echod: a port is needed")
	}
	port, err := strconv.ParseUint(argv[1], 10, 16)
	if err != nil {
		return p.fail(2, "echod: bad port '%s'", argv[1])
	}
	l := &listener{owner: p, ctx: p.ctx, queue: make(chan *socket)}
	if !p.sys.listen(uint16(port), l) {
		return p.fail(1, "echod: address already in use")
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	defer p.sys.unlisten(uint16(port))
	for {
		select {
		case c := <-l.queue:
			conns.Go(func() { echo(p.ctx, c) })
		case <-p.ctx.Done():
			return 1
		}
	}
}

func echo(ctx context.Context, c *socket) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_, _ = io.Copy(c, c) // its end is the connection's, however it came
	_ = c.Close()
}

func (s *System) listen(port uint16, l *listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[port] != nil {
		return false
	}
	s.ports[port] = l
	return true
}

func (s *System) unlisten(port uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ports, port)
}
