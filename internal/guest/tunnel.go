package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hashicorp/yamux"
)

const (
	// MaxTunnelConns is how many connections to the outside a sandbox may have.
	// With questions for names, of which MaxTunnelNames may be under way, it is
	// less than what the host bears (MaxGuestStreams).
	MaxTunnelConns = 224
	MaxTunnelNames = 16
	// MaxWideConns is how many of the connections have wide windows.
	MaxWideConns = 16
	// wideWindow is what a connection needs that is alone to be as fast as the
	// way through both multiplexers allows, measured: four times as much as
	// portWindow gives three times the rate.
	wideWindow = 1 << 20
)

// Tunnel is one end of a multiplexer of connections to the outside, in which
// the guest opens a stream for each. Besides, there is one stream of the host's
// in which both ends tell which of the others they reset: 4 bytes each, the
// stream's number, big-endian. In the stream itself that would come behind all
// that waits in it. The first is 0: the host begins the tunnel, the guest uses it.
type Tunnel struct {
	mux    *yamux.Session
	resets chan uint32
	tasks  sync.WaitGroup
	begun  chan struct{} // closed with the first word of the other end
	bound  int           // of streams that the guest may hold

	mu    sync.Mutex
	conns map[uint32]*TunnelConn
}

// maxResets is how many resets wait to be told: each stream can have one.
const maxResets = 2 * MaxGuestStreams

// NewTunnel begins a tunnel on a stream of a session; r reads the stream. A wide
// one is for few connections. In the guest it waits for the host. Closing the
// tunnel closes the stream.
func NewTunnel(stream net.Conn, r io.Reader, host, wide bool) (*Tunnel, error) {
	window, bound := uint32(portWindow), MaxGuestStreams
	if wide {
		window, bound = wideWindow, 2*MaxWideConns
	}
	mux, err := newMux(readConn{stream, r}, host, window)
	if err != nil {
		return nil, err
	}
	t := &Tunnel{mux: mux, resets: make(chan uint32, maxResets), begun: make(chan struct{}), bound: bound, conns: map[uint32]*TunnelConn{}}
	var control net.Conn
	if host {
		control, err = mux.Open()
		t.Begin() // the stream begins with the first bytes in it
	} else {
		control, err = mux.Accept()
	}
	if err != nil {
		_ = mux.Close()
		return nil, fmt.Errorf("begin a tunnel: %w", err)
	}
	t.tasks.Go(func() { t.hear(control) })
	t.tasks.Go(func() { t.tell(control) })
	return t, nil
}

// tell writes the resets of this end.
func (t *Tunnel) tell(control net.Conn) {
	for {
		select {
		case id := <-t.resets:
			if _, err := control.Write(binary.BigEndian.AppendUint32(nil, id)); err != nil {
				return
			}
		case <-t.Done():
			return
		}
	}
}

// hear takes the resets of the other end.
func (t *Tunnel) hear(control net.Conn) {
	var b [4]byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(control, b[:]); err != nil {
			return // the tunnel is over
		}
		if first {
			close(t.begun)
		}
		t.mu.Lock()
		c := t.conns[binary.BigEndian.Uint32(b[:])]
		t.mu.Unlock()
		if c != nil {
			c.end(ErrReset)
		}
	}
}

// Begin tells the other end that this one is ready.
func (t *Tunnel) Begin() { t.resets <- 0 }

// Begun is closed when the other end is ready.
func (t *Tunnel) Begun() <-chan struct{} { return t.begun }

// Done is closed when the tunnel is over, and with it all its connections.
func (t *Tunnel) Done() <-chan struct{} { return t.mux.CloseChan() }

// Close ends the tunnel and resets its connections.
func (t *Tunnel) Close() error {
	err := t.mux.Close()
	t.tasks.Wait()
	return err
}

// Held is how many connections the two ends hold, those that only one of them
// has closed included.
func (t *Tunnel) Held() int { return max(0, t.mux.NumStreams()-1) }

// Open begins a connection. Unavailable: the tunnel is over.
func (t *Tunnel) Open(h TunnelHead) (*TunnelConn, error) {
	s, err := t.mux.OpenStream()
	if err != nil {
		return nil, Errorf(errdefs.ErrUnavailable, "open a stream to the host: %v", err)
	}
	c := t.add(s)
	if _, err := s.Write(h.encode()); err != nil {
		c.Reset()
		return nil, Errorf(errdefs.ErrUnavailable, "open a stream to the host: %v", err)
	}
	return c, nil
}

// Accept waits for the next connection. A guest that holds too many ends the
// tunnel.
func (t *Tunnel) Accept() (*TunnelConn, error) {
	s, err := t.mux.AcceptStream()
	if err != nil {
		return nil, err
	}
	if t.Held() > t.bound {
		_ = t.mux.Close()
		return nil, errTooManyStreams
	}
	return t.add(s), nil
}

var errTooManyStreams = Errorf(errdefs.ErrResourceExhausted, "the guest holds too many streams")

func (t *Tunnel) add(s *yamux.Stream) *TunnelConn {
	c := &TunnelConn{Duplex: NewDuplex(s, s), t: t, stream: s, done: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[s.StreamID()] = c
	return c
}

// TunnelConn is a connection to the outside. Unlike a [Duplex] it knows at once
// when the other end resets it, whatever waits in it.
type TunnelConn struct {
	*Duplex
	t      *Tunnel
	stream *yamux.Stream
	sent   atomic.Bool // that this end has no more bytes

	mu   sync.Mutex
	why  error // of the end; nil before
	done chan struct{}
}

// ReadHead reads what the connection is for.
func (c *TunnelConn) ReadHead(timeout time.Duration) (TunnelHead, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return TunnelHead{}, err
	}
	h, err := readTunnelHead(c.stream)
	if err != nil {
		return h, fmt.Errorf("read the head of a tunnel's stream: %w", err)
	}
	return h, c.SetReadDeadline(time.Time{})
}

// Done is closed when the connection has ended at this end, or was reset at the
// other.
func (c *TunnelConn) Done() <-chan struct{} { return c.done }

// end ends the connection at this end, for the given reason, and reports whether
// it was not over before.
func (c *TunnelConn) end(why error) bool {
	c.mu.Lock()
	if c.why != nil {
		c.mu.Unlock()
		return false
	}
	c.why = why
	_ = c.stream.SetDeadline(past) // yamux's Close leaves who waits waiting
	close(c.done)
	c.mu.Unlock()
	_ = c.stream.Close()
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	delete(c.t.conns, c.stream.StreamID())
	return true
}

var past = time.Unix(1, 0)

func (c *TunnelConn) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// Reset ends the connection at both ends at once. Bytes on their way are lost.
func (c *TunnelConn) Reset() {
	if !c.end(net.ErrClosed) {
		return
	}
	select {
	case c.t.resets <- c.stream.StreamID():
	default: // the other end does not listen, and learns of it in the stream
	}
}

// Close ends the connection. What was written before CloseWrite still arrives;
// without CloseWrite before, Close is Reset.
func (c *TunnelConn) Close() error {
	if !c.sent.Load() {
		c.Reset()
		return nil
	}
	c.end(net.ErrClosed)
	return nil
}

// WaitClosed returns when the other end, too, has let go of a connection that was
// closed here, and nobody else uses; at the latest after the given time.
func (c *TunnelConn) WaitClosed(timeout time.Duration) {
	_ = c.stream.SetReadDeadline(time.Now().Add(timeout))
	_, _ = io.Copy(io.Discard, c.stream)
}

// CloseWrite tells the other end that no more bytes come. Reading goes on.
func (c *TunnelConn) CloseWrite() error {
	err := c.Duplex.CloseWrite()
	c.sent.Store(err == nil)
	return c.explain(err)
}

// Fail is Reset: what the other end is part of shall break, too.
func (c *TunnelConn) Fail(error) error {
	c.Reset()
	return nil
}

// Read returns io.EOF when the other end has closed its direction, an error that
// wraps [ErrReset] after it was reset.
func (c *TunnelConn) Read(p []byte) (int, error) {
	if err := c.over(); err != nil {
		return 0, err
	}
	n, err := c.Duplex.Read(p)
	return n, c.explain(err)
}

// Write blocks while the other end does not read.
func (c *TunnelConn) Write(p []byte) (int, error) {
	n, err := c.Duplex.Write(p)
	return n, c.explain(err)
}

// explain tells why the connection is over, if it is, instead of how that was
// noticed.
func (c *TunnelConn) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if why := c.over(); why != nil {
		return why
	}
	return err
}

// SetDeadline bounds reads and writes; see net.Conn.
func (c *TunnelConn) SetDeadline(t time.Time) error { return c.set(c.stream.SetDeadline, t) }

// SetReadDeadline bounds reads.
func (c *TunnelConn) SetReadDeadline(t time.Time) error { return c.set(c.stream.SetReadDeadline, t) }

// SetWriteDeadline bounds writes.
func (c *TunnelConn) SetWriteDeadline(t time.Time) error { return c.set(c.stream.SetWriteDeadline, t) }

// set leaves the deadline of a connection that is over in the past.
func (c *TunnelConn) set(f func(time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return c.why
	}
	return f(t)
}
