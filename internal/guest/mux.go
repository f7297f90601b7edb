package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// writeTimeout is how long yamux waits for the other end to take what is written.
	// It would leave streams in a state that nobody knows, so it is none: the host has
	// a limit of its own.
	writeTimeout = 24 * time.Hour
	// closeTimeout is how long a stream may stay half closed.
	closeTimeout = time.Hour
	// guestWindow and hostWindow are the buffers of one stream at its reader in
	// the guest and on the host: at least twice the unit in which bodies move, so
	// that the writer goes on while the reader works. They bound what a stalled
	// reader holds; on the host, where a hostile guest may stall
	// MaxGuestStreams of them, less is allowed.
	guestWindow = 2 << 20
	hostWindow  = 1 << 20
	// portWindow is both for connections to ports, and to the outside: as little as
	// yamux allows. A server that reads nothing is the sandbox's own doing or misfortune, and all
	// connections together must leave most of a small sandbox's memory free: 224
	// of them hold 56 MiB in the guest.
	portWindow = 256 << 10
	// backlog of streams that were opened and not yet accepted.
	backlog = 256
	// MaxGuestStreams is how many streams the guest may hold at the host beyond
	// those that the host opened and still uses; with more, the host ends the
	// session. A guest that opens streams and never closes them, or never
	// finishes closing the host's, would else cost the host a window each
	// without bound. The same holds for the streams of a tunnel.
	MaxGuestStreams = 256
)

// NewMux multiplexes conn, on which the Hello messages were exchanged. The host
// is yamux's client. Closing the session closes conn.
func NewMux(conn net.Conn, host bool) (*yamux.Session, error) {
	window := uint32(guestWindow)
	if host {
		window = hostWindow
	}
	return newMux(readConn{conn, bufio.NewReaderSize(conn, readAhead)}, host, window)
}

// readAhead is how much is read of the stream at once: yamux's own 4 KiB would take two
// system calls for each frame, which in a sandbox cost more than a copy.
const readAhead = 64 << 10

// NewPortMux multiplexes a stream of a session for connections to ports. They
// have a multiplexer of their own because yamux has one size of window for all
// streams of a session, and files and output need a larger one. r reads the
// stream.
func NewPortMux(stream net.Conn, r io.Reader, host bool) (*yamux.Session, error) {
	return newMux(readConn{stream, r}, host, portWindow)
}

// readConn is a connection of which something was read already.
type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func newMux(conn net.Conn, host bool, window uint32) (*yamux.Session, error) {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.AcceptBacklog = backlog
	c.ConnectionWriteTimeout = writeTimeout
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closeTimeout
	c.MaxStreamWindowSize = window
	c.LogOutput = io.Discard
	open := yamux.Server
	if host {
		open = yamux.Client
	}
	s, err := open(&muxConn{Conn: conn}, c)
	if err != nil {
		return nil, fmt.Errorf("multiplex the guest stream: %w", err)
	}
	return s, nil
}

// muxConn guards and speeds up the stream below yamux.
//
// It ends the session on a yamux ping, which neither end sends: each would cost
// the reader a goroutine that waits for the writer, so a peer that sends pings
// and reads nothing would take memory without bound.
//
// It sends the header and the body of a data frame with one write, and with them
// the frame that opened the stream: whoever opens one writes to it or closes it
// next, and each write wakes the other end.
type muxConn struct {
	net.Conn
	in   frameScanner
	held []byte // frames and headers that go with the next write
	body bool   // the next write is a body
}

// The header of yamux: version, type, flags (2), stream (4), length (4).
const (
	yamuxHeader     = 12
	yamuxTypeData   = 0
	yamuxTypeWindow = 1
	yamuxTypePing   = 2
	yamuxFlagSYN    = 1
)

var errPing = errors.New("read guest stream: unexpected ping")

// Close closes the stream below. From here until the session's reader has ended,
// who reads a stream of the session spins: yamux's wait returns at once. An agent,
// with one processor, would not come to that reader: the watchdog of Go's scheduler,
// which takes a processor from who has it for long, sleeps when all was idle, and
// for 60 s when no system call wakes it. One of the ordinary kind does; those by
// which the agent moves bytes do not.
func (c *muxConn) Close() error {
	_, _ = os.Lstat("/")
	return c.Conn.Close()
}

func (c *muxConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if scanErr := c.in.scan(p[:n]); scanErr != nil {
		return 0, scanErr
	}
	return n, err
}

// coalesce is the largest body that is copied behind its header.
const coalesce = 64 << 10

func (c *muxConn) Write(p []byte) (int, error) {
	if !c.body && c.hold(p) {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	c.body = false
	b := c.held
	c.held = b[:0]
	switch {
	case len(b) == 0:
		return c.Conn.Write(p)
	case len(p) > coalesce:
		if _, err := c.Conn.Write(b); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	}
	b = append(b, p...)
	c.held = b[:0] // with the room that it has now
	if _, err := c.Conn.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hold reports whether a header is to go with the next write.
func (c *muxConn) hold(p []byte) bool {
	if len(p) != yamuxHeader {
		return false
	}
	switch p[1] {
	case yamuxTypeData:
		c.body = binary.BigEndian.Uint32(p[8:]) > 0
		return c.body
	case yamuxTypeWindow:
		return binary.BigEndian.Uint16(p[2:])&yamuxFlagSYN != 0 && len(c.held) < coalesce
	}
	return false
}

// frameScanner follows yamux's frames through a stream of bytes.
type frameScanner struct {
	head [yamuxHeader]byte
	have int    // bytes of head
	body uint32 // bytes of the body still to come
}

func (s *frameScanner) scan(p []byte) error {
	for len(p) > 0 {
		if s.body > 0 {
			n := min(uint32(len(p)), s.body)
			s.body -= n
			p = p[n:]
			continue
		}
		n := copy(s.head[s.have:], p)
		s.have += n
		p = p[n:]
		if s.have < yamuxHeader {
			return nil
		}
		s.have = 0
		switch s.head[1] {
		case yamuxTypePing:
			return errPing
		case yamuxTypeData:
			s.body = binary.BigEndian.Uint32(s.head[8:])
		}
	}
	return nil
}
