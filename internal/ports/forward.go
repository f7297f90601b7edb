package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Conn is a connection that can be closed in one direction.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Dialer connects to a port of the sandbox.
type Dialer func(ctx context.Context, port int) (Conn, error)

const (
	// maxConns bounds the connections of one mapping. Further clients wait in
	// the kernel's queue. It is less than what a sandbox takes (224).
	maxConns = 200
	// dialTimeout bounds the connecting inside.
	dialTimeout = 15 * time.Second
	// busy is how long to wait when the sandbox has no place for a connection.
	busy = 50 * time.Millisecond
	// tries is how often a free port is looked for in a range of ports.
	tries = 50
)

// Forward is a mapping in force.
type Forward struct {
	Mapping // with the port that was chosen

	listener *net.TCPListener
	dial     Dialer
	ctx      context.Context
	stop     context.CancelFunc
	places   chan struct{}
	tasks    sync.WaitGroup
}

// Open listens for a mapping; clients wait until Serve. A port that is in use is
// AlreadyExists, one outside of the range a [sandbox.InvalidError]; both say what
// to do.
func Open(m Mapping, allowed Range) (*Forward, error) {
	l, err := listen(m, allowed)
	if err != nil {
		return nil, err
	}
	m.Host = netip.AddrPortFrom(m.Host.Addr(), l.Addr().(*net.TCPAddr).AddrPort().Port())
	f := &Forward{Mapping: m, listener: l, places: make(chan struct{}, maxConns)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f, nil
}

// Serve passes connections on until Close. It is called at most once, and not
// after Close.
func (f *Forward) Serve(dial Dialer) {
	f.dial = dial
	f.tasks.Go(f.accept)
}

// listenTCP names the family: else 0.0.0.0 would be the addresses of IPv6, too.
func listenTCP(at netip.AddrPort) (*net.TCPListener, error) {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	return net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
}

func listen(m Mapping, allowed Range) (*net.TCPListener, error) {
	port := m.Host.Port()
	if port == 0 {
		return listenFree(m.Host.Addr(), allowed)
	}
	if !allowed.holds(port) {
		return nil, &sandbox.InvalidError{Field: "publish", Value: m.String(), Allowed: fmt.Sprintf(
			"host ports %s, which --port-range or AGENTBOX_PORT_RANGE changes; such as 0:%d for any free port", allowed, m.Guest)}
	}
	l, err := listenTCP(m.Host)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d on %s is in use; take another one, or 0:%d for any free port: %w",
			port, m.Host.Addr(), m.Guest, errdefs.ErrAlreadyExists)
	case err != nil:
		return nil, fmt.Errorf("listen for %s: %w", m, err)
	}
	return l, nil
}

// listenFree takes a free port. The kernel's choice is tried first; it knows
// nothing of the range.
func listenFree(ip netip.Addr, allowed Range) (*net.TCPListener, error) {
	port := uint16(0)
	for range tries {
		l, err := listenTCP(netip.AddrPortFrom(ip, port))
		if err == nil && allowed.holds(l.Addr().(*net.TCPAddr).AddrPort().Port()) {
			return l, nil
		}
		if err == nil {
			_ = l.Close() // outside of the range
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w", ip, err)
		}
		port = allowed.First + uint16(rand.IntN(int(allowed.Last)-int(allowed.First)+1))
	}
	return nil, fmt.Errorf("no free port was found in %s on %s: %w", allowed, ip, errdefs.ErrResourceExhausted)
}

// Close stops listening and ends all connections.
func (f *Forward) Close() error {
	f.stop()
	err := f.listener.Close()
	f.tasks.Wait()
	return err
}

func (f *Forward) accept() {
	for {
		select {
		case f.places <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		c, err := f.listener.AcceptTCP()
		if err != nil {
			<-f.places
			if f.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Such as too many open files: it may pass.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-f.ctx.Done():
			}
			continue
		}
		f.tasks.Go(func() {
			defer func() { <-f.places }()
			f.serve(c)
		})
	}
}

// serve passes one connection on. The client of a port on which nothing listens
// is reset, as it would be without a mapping.
func (f *Forward) serve(client *net.TCPConn) {
	defer client.Close()
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	server, err := f.connect(ctx)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	defer server.Close()
	end := context.AfterFunc(f.ctx, func() {
		_ = client.SetLinger(0)
		client.Close()
		server.Close()
	})
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(server, client, client, server)
	}()
	pass(client, server, client, server)
	<-done
}

// connect dials, and waits while the sandbox has connections enough: some may be
// on their way out, or belong to other mappings.
func (f *Forward) connect(ctx context.Context) (Conn, error) {
	for {
		c, err := f.dial(ctx, int(f.Guest))
		if !errdefs.IsResourceExhausted(err) {
			return c, err
		}
		select {
		case <-time.After(busy):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// pass moves bytes in one direction and the end of them with it. When it breaks
// off, both ends are closed, the client's with a reset.
func pass(to, from, client, server Conn) {
	// Hide the shortcuts of io.Copy: they would take a pipe for nothing.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
	if err == nil {
		err = to.CloseWrite()
	}
	if err == nil {
		return
	}
	if c, ok := client.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	client.Close()
	server.Close()
}
