package toyos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"agentbox/internal/guest/agent"
)

var _ agent.Loopback = (*System)(nil)

// Listen lets the agent wait on a port. There is one address.
func (s *System) Listen(at netip.AddrPort) (agent.Listener, error) {
	l := &agentListener{sys: s, port: at.Port(), listener: &listener{queue: make(chan *socket)}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if !s.listen(at.Port(), l.listener) {
		return nil, fmt.Errorf("listen on %s: %w", at, syscall.EADDRINUSE)
	}
	return l, nil
}

// ListenAside is Listen: programs have no other port meanwhile.
func (s *System) ListenAside(at netip.AddrPort) (agent.Listener, error) { return s.Listen(at) }

// Taken reports whether a process waits on the port.
func (s *System) Taken(at netip.AddrPort) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ports[at.Port()]
	return l != nil && l.owner != nil, nil
}

// agentListener is a port of the agent.
type agentListener struct {
	*listener
	sys    *System
	port   uint16
	cancel context.CancelFunc
}

func (l *agentListener) Accept() (agent.PortConn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *agentListener) Close() error {
	if l.ctx.Err() == nil {
		l.cancel()
		l.sys.unlisten(l.port)
	}
	return nil
}

// ListenPacket fails: there are no datagrams.
func (*System) ListenPacket(netip.AddrPort) (net.PacketConn, error) {
	return nil, fmt.Errorf("listen for datagrams: %w", syscall.EPROTONOSUPPORT)
}

// UseResolver has nothing to do: no program looks names up.
func (*System) UseResolver(netip.Addr) error { return nil }

// cmdNetcat is a client: netcat PORT connects, sends its input, closes its
// direction and prints what comes back.
func cmdNetcat(p *proc, argv []string) int {
	if len(argv) != 2 {
		return p.fail(2, "netcat: a port is needed")
	}
	port, err := strconv.ParseUint(argv[1], 10, 16)
	if err != nil {
		return p.fail(2, "netcat: bad port '%s'", argv[1])
	}
	c, err := p.sys.Dial(p.ctx, uint16(port))
	if err != nil {
		return p.fail(1, "netcat: %s", reason(err))
	}
	defer context.AfterFunc(p.ctx, func() { _ = c.Close() })()
	sent := make(chan struct{})
	ctx, cancel := context.WithCancel(p.ctx)
	go func() {
		defer close(sent)
		_, _ = io.Copy(c, contextReader{ctx, p.fds[0]})
		_ = c.CloseWrite()
	}()
	_, err = io.Copy(contextWriter{p.ctx, p.fds[1]}, c)
	_ = c.Close()
	cancel()
	<-sent
	if err != nil {
		return p.fail(1, "netcat: %s", reason(err))
	}
	return 0
}

// contextReader and contextWriter are open files during a context.
type contextReader struct {
	ctx context.Context
	f   file
}

func (r contextReader) Read(b []byte) (int, error) { return r.f.read(r.ctx, b) }

type contextWriter struct {
	ctx context.Context
	f   file
}

func (w contextWriter) Write(b []byte) (int, error) { return w.f.write(w.ctx, b) }
