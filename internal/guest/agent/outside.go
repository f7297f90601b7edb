package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Loopback is the sandbox's own network, on which the agent waits for programs.
type Loopback interface {
	// Listen waits for TCP connections. Programs that set SO_REUSEADDR can still
	// bind the port on all addresses.
	Listen(at netip.AddrPort) (Listener, error)
	// ListenAside is Listen for a port that is not the agent's own: a program that
	// sets SO_REUSEADDR, as servers do, binds it as if nobody had it. Connections go
	// to the agent as long as it listens, so it has to look whether it is Taken.
	ListenAside(at netip.AddrPort) (Listener, error)
	// Taken reports whether a program waits for the connections to an address.
	Taken(at netip.AddrPort) (bool, error)
	// ListenPacket waits for UDP datagrams.
	ListenPacket(at netip.AddrPort) (net.PacketConn, error)
	// UseResolver makes programs ask a name server at the address, or, if that is
	// not valid, none. What a user has configured stays.
	UseResolver(at netip.Addr) error
}

// Listener takes connections of programs.
type Listener interface {
	Accept() (PortConn, error)
	Close() error
}

// ProxyAddr is where programs in a sandbox with a network find the proxy.
var ProxyAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 3128)

const (
	// maxRefusals is how many connections are told why they are refused at once;
	// others are just ended.
	maxRefusals = 16
	// refusalTime is how long who was refused may take to read why, and
	// refusalRead how much of what it sends meanwhile is taken: an end with unread
	// bytes would be a reset, which can overtake the answer.
	refusalTime = time.Second
	refusalRead = 64 << 10
)

// outside lets programs reach what is outside of the sandbox, which the host
// decides. It outlives sessions.
type outside struct {
	loopback Loopback // nil: there is none

	configuring sync.Mutex // one configuration at a time

	mu        sync.Mutex
	tunnel    *lane     // of the session; nil: nobody is there
	wide      *lane     // for the first few connections; nil: all are alike
	proxy     Listener  // nil: the sandbox has no network
	resolver  *resolver // nil: none
	programs  map[PortConn]struct{}
	refusals  int
	undecided bool // nothing was configured yet: files may be there from before
}

// lane is a tunnel and how many of its places are taken.
type lane struct {
	*guest.Tunnel
	wide bool
	used int
}

// room reports whether the tunnel, if there is one, has a place among limit.
func (l *lane) room(limit int) bool { return l != nil && l.used < limit }

func newOutside(l Loopback) *outside {
	return &outside{loopback: l, programs: map[PortConn]struct{}{}, undecided: true}
}

// configure gives the sandbox a network, or takes it away.
func (o *outside) configure(c *guestv1.Network) error {
	if o.loopback == nil {
		if c != nil {
			return errNoPorts
		}
		return nil
	}
	o.configuring.Lock()
	defer o.configuring.Unlock()
	o.mu.Lock()
	proxy, r, undecided := o.proxy, o.resolver, o.undecided
	o.undecided = false
	o.mu.Unlock()
	var err error
	switch {
	case c != nil && proxy == nil:
		err = o.listen()
	case c == nil && proxy != nil:
		o.close()
	}
	if r != nil && c.GetResolver() && slices.Equal(r.ports, resolverPorts(c)) {
		return err
	}
	if r != nil {
		r.close()
		o.setResolver(nil)
	}
	if r != nil || c.GetResolver() || undecided {
		err = errors.Join(err, o.resolve(c))
	}
	return err
}

// listen waits for clients of the proxy.
func (o *outside) listen() error {
	l, err := o.loopback.Listen(ProxyAddr)
	if err != nil {
		return fmt.Errorf("open the proxy of the sandbox: %w", err)
	}
	o.mu.Lock()
	o.proxy = l
	o.mu.Unlock()
	go o.accept(l, guest.TunnelHead{Kind: guest.TunnelProxy})
	return nil
}

// close ends the proxy and all connections.
func (o *outside) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.proxy != nil {
		_ = o.proxy.Close()
		o.proxy = nil
	}
	for c := range o.programs {
		abort(c)
	}
}

// resolve begins to answer questions for names, or sees to it that nobody asks.
func (o *outside) resolve(c *guestv1.Network) error {
	if !c.GetResolver() {
		return o.loopback.UseResolver(netip.Addr{})
	}
	r, err := newResolver(o, resolverPorts(c))
	if err != nil {
		return fmt.Errorf("open the resolver of the sandbox: %w", err)
	}
	o.setResolver(r)
	return o.loopback.UseResolver(resolverAddr.Addr())
}

func (o *outside) setResolver(r *resolver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resolver = r
}

// accept takes connections until l is closed.
func (o *outside) accept(l Listener, h guest.TunnelHead) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // such as too many open files
			continue
		}
		if l, why := o.enter(c); l != nil {
			go o.carry(c, l, h)
		} else {
			o.refuse(c, why)
		}
	}
}

// acceptPause is how long a listener rests when a connection can't be taken.
const acceptPause = 50 * time.Millisecond

// What a program is told that can't reach the outside.
var (
	whyNoHost = "agentbox: no daemon is connected to this sandbox just now; try again"
	whyFull   = fmt.Sprintf("agentbox: the sandbox has its %d connections to the outside already; close some", guest.MaxTunnelConns)
)

// enter takes a place for a program's connection; why tells that there is none.
func (o *outside) enter(c PortConn) (l *lane, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.tunnel == nil:
		return nil, whyNoHost
	case len(o.programs) >= guest.MaxTunnelConns:
		return nil, whyFull
	case o.wide.room(guest.MaxWideConns):
		l = o.wide
	case o.tunnel.room(guest.MaxTunnelConns):
		l = o.tunnel
	default:
		return nil, whyFull
	}
	o.programs[c] = struct{}{}
	l.used++
	return l, ""
}

// leave gives the place back.
func (o *outside) leave(c PortConn, l *lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.programs, c)
	l.used--
}

// wideBuffer is how much waits for a program in the socket of one of the few connections
// of the wide lane, in bytes: with less than a large piece, the agent and the program
// take turns for each part of one.
const wideBuffer = 256 << 10

// letGoTime is how long a connection keeps its place after its end, until the
// host has let go of it: else the host could hold more than it bears.
const letGoTime = time.Minute

// carry passes bytes between a program and the host.
func (o *outside) carry(c PortConn, l *lane, h guest.TunnelHead) {
	defer o.leave(c, l)
	out, err := l.Open(h)
	if err != nil {
		o.refuse(c, whyNoHost)
		return
	}
	if wide, ok := c.(interface{ SetWriteBuffer(bytes int) error }); ok && l.wide {
		_ = wide.SetWriteBuffer(wideBuffer) // it is only faster
	}
	pass(out, c)
	_ = c.Close()
	_ = out.Close()
	out.WaitClosed(letGoTime)
}

// refuse tells a program why it is refused, in the words of the proxy's protocol,
// and ends the connection. It does not wait for that.
func (o *outside) refuse(c PortConn, why string) {
	o.mu.Lock()
	told := o.refusals < maxRefusals
	if told {
		o.refusals++
	}
	o.mu.Unlock()
	if !told {
		abort(c)
		return
	}
	go func() {
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.refusals--
		}()
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(refusalTime))
		_, err := fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s\n", len(why)+1, why)
		if err == nil && c.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, c, refusalRead)
		}
	}()
}

// mayResolve asks the host about a name.
func (o *outside) mayResolve(ctx context.Context, name string) (bool, error) {
	o.mu.Lock()
	l := o.tunnel
	room := l.room(guest.MaxTunnelConns + guest.MaxTunnelNames)
	if room {
		l.used++
	}
	o.mu.Unlock()
	if !room {
		return false, guest.Errorf(errdefs.ErrUnavailable, "no host is connected, or it is busy")
	}
	defer o.leave(nil, l)
	c, err := l.Open(guest.TunnelHead{Kind: guest.TunnelName, Name: name})
	if err != nil {
		return false, err
	}
	defer c.WaitClosed(letGoTime)
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, c.Reset)()
	_ = c.CloseWrite() // so that an end is one
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return false, err
	}
	return answer[0] == 1, nil
}

// serve answers /tunnel: it takes over the stream until the session ends or
// another tunnel takes the place of this one.
func (o *outside) serve(w http.ResponseWriter, r *http.Request) {
	err := mustUpgrade(r)
	if o.loopback == nil {
		err = errNoPorts
	}
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	conn, rw, ok := takeOver(w)
	if !ok {
		return
	}
	defer conn.Close()
	wide := r.URL.Path == guest.PathWideTunnel
	t, err := guest.NewTunnel(conn, rw.Reader, false, wide)
	if err != nil {
		return
	}
	defer func() { _ = t.Close() }()
	at := &o.tunnel
	if wide {
		at = &o.wide
	}
	l := &lane{Tunnel: t, wide: wide}
	if old := o.swap(at, l); old != nil {
		_ = old.Close()
	}
	t.Begin()
	<-t.Done()
	o.forget(at, l)
}

// swap puts a lane in the place of another one.
func (o *outside) swap(at **lane, l *lane) (old *lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, *at = *at, l
	return old
}

// forget takes a lane away that is over.
func (o *outside) forget(at **lane, l *lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *at == l {
		*at = nil
	}
}
