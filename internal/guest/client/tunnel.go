package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// Tunnel is the way out of a sandbox. Its methods are called from several
// goroutines at once. Everything that comes from a connection is the guest's:
// the implementation bounds it in size and time, and decides what may be reached.
//
// conn is a *guest.TunnelConn: it has CloseWrite, Close without CloseWrite before
// resets it, and reads and writes fail with an error that is guest.ErrReset when
// the program in the sandbox did so or the session ended; the context ends then,
// too. It is closed when the method has returned.
type Tunnel interface {
	// Proxy serves a client of the sandbox's proxy, 127.0.0.1:3128.
	Proxy(ctx context.Context, conn net.Conn)
	// Connect serves a program that connected to the address that it was told for
	// a name, guest.ValidName.
	Connect(ctx context.Context, conn net.Conn, name string, port uint16)
	// MayResolve reports whether a program may be told an address for a name,
	// guest.ValidName. The context bounds it.
	MayResolve(ctx context.Context, name string) bool
}

const (
	// tunnelHeadTimeout bounds the head of a stream, which the guest sends with
	// the first bytes of it.
	tunnelHeadTimeout = 10 * time.Second
	// nameTimeout bounds MayResolve. The guest waits longer.
	nameTimeout = 5 * time.Second
)

// ServeTunnel lets the guest open connections to the outside, which t serves,
// until the session ends. It returns when the guest has taken the tunnel; one
// that was served before ends. NotImplemented: the sandbox's agent is older than
// tunnels, or has no network.
func (s *Session) ServeTunnel(ctx context.Context, t Tunnel) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, wide := range []bool{true, false} { // connections begin with the latter
		if err := s.serveTunnel(ctx, t, wide); err != nil {
			return fmt.Errorf("begin the tunnel of the sandbox: %w", err)
		}
	}
	return nil
}

func (s *Session) serveTunnel(ctx context.Context, t Tunnel, wide bool) error {
	path := guest.PathTunnel
	if wide {
		path = guest.PathWideTunnel
	}
	c, r, err := s.raw(ctx, path)
	if err != nil {
		return err
	}
	tunnel, err := guest.NewTunnel(abortConn{c}, r, true, wide)
	if err != nil {
		c.abort()
		return err
	}
	select {
	case <-tunnel.Begun():
	case <-tunnel.Done():
		err = fmt.Errorf("%w: the guest ended it", errdefs.ErrUnavailable)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(err, tunnel.Close())
	}
	if !s.begin(func() { serveConns(tunnel, t) }) {
		_ = tunnel.Close()
		return fmt.Errorf("%w: the session is closed", errdefs.ErrUnavailable)
	}
	return nil
}

// begin runs f as a task of the session, unless that is closed.
func (s *Session) begin(f func()) bool {
	s.ports.place <- struct{}{}
	defer func() { <-s.ports.place }()
	if s.ports.closed {
		return false
	}
	s.tasks.Go(f)
	return true
}

// serveConns serves the guest's streams until the tunnel is over. It does not
// wait for those who serve them: they are not the session's.
func serveConns(tunnel *guest.Tunnel, t Tunnel) {
	defer func() { _ = tunnel.Close() }()
	places := make(chan struct{}, guest.MaxGuestStreams)
	for {
		c, err := tunnel.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
			go func() {
				defer func() { <-places }()
				defer func() { _ = c.Close() }()
				serveConn(tunnel, c, t)
			}()
		default: // who serves those before takes longer than the guest waits
			c.Reset()
		}
	}
}

func serveConn(tunnel *guest.Tunnel, c *guest.TunnelConn, t Tunnel) {
	h, err := c.ReadHead(tunnelHeadTimeout)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan struct{})
	defer close(served)
	go func() {
		defer cancel()
		select {
		case <-c.Done():
		case <-tunnel.Done():
		case <-served:
		}
	}()
	switch h.Kind {
	case guest.TunnelProxy:
		t.Proxy(ctx, c)
	case guest.TunnelConnect:
		t.Connect(ctx, c, h.Name, h.Port)
	case guest.TunnelName:
		answerName(ctx, c, t, h.Name)
	}
}

func answerName(ctx context.Context, c *guest.TunnelConn, t Tunnel, name string) {
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	answer := []byte{0}
	if t.MayResolve(ctx, name) {
		answer[0] = 1
	}
	if _, err := c.Write(answer); err == nil {
		_ = c.CloseWrite()
	}
}
