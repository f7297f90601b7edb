package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/ids"
)

// Port is a TCP socket in the sandbox that waits for connections.
type Port struct {
	Addr netip.AddrPort
	UID  int
	// Pid and Process tell who holds the socket; 0 and "" when the guest does
	// not know. The name is as the process chose it.
	Pid     int
	Process string
}

// ListPorts lists the TCP ports on which something listens in the sandbox, by
// port and address. truncated tells that there are more than the guest lists.
func (s *Session) ListPorts(ctx context.Context) (list []Port, truncated bool, err error) {
	a := new(guestv1.ListPortsResponse)
	if err := s.call(ctx, "ListPorts", new(guestv1.ListPortsRequest), a); err != nil {
		return nil, false, fmt.Errorf("list ports: %w", err)
	}
	for _, m := range a.GetPorts() {
		addr, err := netip.ParseAddr(m.GetAddress())
		if err != nil || m.GetPort() > 1<<16-1 {
			return nil, false, fmt.Errorf("list ports: %w: the guest tells of %.60q port %d", errdefs.ErrInternal, m.GetAddress(), m.GetPort())
		}
		list = append(list, Port{
			Addr: netip.AddrPortFrom(addr, uint16(m.GetPort())), UID: int(m.GetUid()), Pid: int(max(m.GetPid(), 0)),
			Process: strings.ToValidUTF8(string(m.GetProcess()[:min(len(m.GetProcess()), maxProcessName)]), "\uFFFD"),
		})
	}
	return list, a.GetTruncated(), nil
}

// maxProcessName is a little more than the kernel keeps of a name (15 bytes).
const maxProcessName = 64

// Conn is a connection to a port in the sandbox. Besides net.Conn it can be
// closed in one direction.
type Conn struct {
	*guest.Duplex
	s      *Session
	stream *stream
	port   int
	id     string
	once   sync.Once
}

// portIDLen is the random bytes in the id of a connection.
const portIDLen = 8

// dialTimeout bounds a DialPort whose context has no deadline. The guest gives
// a server less.
const dialTimeout = 20 * time.Second

// DialPort connects to a TCP port on the loopback interface of the sandbox.
// Unavailable, matching syscall.ECONNREFUSED: nothing listens there.
// ResourceExhausted: there are too many connections. The context bounds the
// connecting only.
func (s *Session) DialPort(ctx context.Context, port int) (*Conn, error) {
	c, err := s.dialPort(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("dial port %d: %w", port, err)
	}
	return c, nil
}

func (s *Session) dialPort(ctx context.Context, port int) (*Conn, error) {
	if port < 1 || port > 1<<16-1 {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "a port is a number from 1 to 65535")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	all, err := s.portMux(ctx)
	if err != nil {
		return nil, err
	}
	id := ids.Hex(portIDLen)
	c, r, err := all.raw(ctx, fmt.Sprintf("%s?port=%d&id=%s", guest.PathPort, port, id))
	if err != nil {
		return nil, err
	}
	return &Conn{Duplex: guest.NewDuplex(c, r), s: s, stream: c, port: port, id: id}, nil
}

// portStreams holds the multiplexer of connections to ports. The place in the
// channel is who may look at it.
type portStreams struct {
	place  chan struct{}
	cur    *streams
	closed bool
}

func newPortStreams() portStreams { return portStreams{place: make(chan struct{}, 1)} }

// portMux begins the multiplexer with the first connection, and another one when
// the guest broke it.
func (s *Session) portMux(ctx context.Context) (*streams, error) {
	p := &s.ports
	select {
	case p.place <- struct{}{}:
		defer func() { <-p.place }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.closed {
		return nil, fmt.Errorf("%w: the session is closed", errdefs.ErrUnavailable)
	}
	if p.cur != nil && !p.cur.mux.IsClosed() {
		return p.cur, nil
	}
	c, r, err := s.raw(ctx, guest.PathPorts)
	if err != nil {
		return nil, err
	}
	mux, err := guest.NewPortMux(abortConn{c}, r, true)
	if err != nil {
		c.abort()
		return nil, err
	}
	p.cur = &streams{mux: mux, takes: s.takes}
	s.tasks.Go(func() {
		_, _ = mux.Accept() // nothing until the end: the guest has no reason to open one
		_ = mux.Close()
	})
	return p.cur, nil
}

// abortConn is a stream that ends when it is closed, whatever the guest does.
type abortConn struct{ *stream }

func (c abortConn) Close() error {
	c.abort()
	return nil
}

// close waits until nobody begins another multiplexer; nobody does afterwards.
func (p *portStreams) close() {
	p.place <- struct{}{}
	p.closed = true
	<-p.place
}

// raw opens a stream and has it upgraded. The context bounds that only.
func (s *streams) raw(ctx context.Context, path string) (*stream, *bufio.Reader, error) {
	c, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, c.abort)
	r, err := upgrade(c, path)
	if !stop() {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		c.abort()
		return nil, nil, err
	}
	return c, r, nil
}

// upgrade asks for a raw stream and returns the reader of what the guest sends
// on it.
func upgrade(c *stream, path string) (*bufio.Reader, error) {
	head := "POST " + path + " HTTP/1.1\r\nHost: guest\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: " + guest.Upgrade + "\r\n\r\n"
	if _, err := c.Write([]byte(head)); err != nil {
		return nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	bounded := &boundedReader{c, maxHead}
	r := bufio.NewReaderSize(bounded, guest.MaxFrame)
	a, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost}) //nolint:bodyclose // it ends with the stream
	if err != nil {
		return nil, fmt.Errorf("%w: no answer from the guest: %w", errdefs.ErrUnavailable, err)
	}
	if a.StatusCode != http.StatusSwitchingProtocols {
		return nil, decodeError(a)
	}
	bounded.left = 1<<63 - 1
	return r, nil
}

// Close ends the connection in both directions. What was written and not yet
// read by the server may be lost, unless CloseWrite and reading to the end came
// before.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.stream.abort()
		c.drop()
	})
	return nil
}

// drop tells the guest that this end is gone, on a stream of its own: what
// waits for the server stands before the end of the connection's. Nobody waits
// for an answer.
func (c *Conn) drop() {
	if !c.Ended() {
		go c.s.dropPort(c.stream.of, c.id)
	}
}

// maxDrops is how many drops are under way. Each is a stream beside that of its
// connection, and the guest finishes both late when it is busy: without a bound,
// a client that closes all its connections at once would hold more streams than
// guest.MaxGuestStreams, and end the multiplexer.
const maxDrops = 4

func (s *Session) dropPort(of *streams, id string) {
	select {
	case s.drops <- struct{}{}:
		defer func() { <-s.drops }()
	case <-s.done:
		return
	}
	c, err := of.open()
	if err != nil {
		return // the multiplexer is over, and with it the connection
	}
	defer c.abort()
	_ = c.SetDeadline(time.Now().Add(callTimeout))
	// The guest ends the stream after its answer, so that nothing is left of it.
	_, err = fmt.Fprintf(c, "%s %s?id=%s HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n", http.MethodDelete, guest.PathPort, id)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c, maxHead))
	}
}

// RemoteAddr is the port in the sandbox.
func (c *Conn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port}
}
