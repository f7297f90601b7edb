package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"agentbox/internal/pump"
)

var (
	errSpoke = errors.New("the server spoke before it was asked")
	// errNoHTTP is wrapped by errors of an answer that breaks off, too.
	errNoHTTP = errors.New("the server's answer is no HTTP")
	errIdle   = errors.New("no byte moved for too long")
	// errClient is wrapped by errors of the client's connection, to tell them from
	// the server's.
	errClient = errors.New("the client closed the connection")
)

// watchdog calls fire, once, when nothing happened for the limit.
type watchdog struct {
	limit time.Duration
	fire  func()
	last  atomic.Int64 // nanoseconds since base
	base  time.Time
	timer *time.Timer
}

func newWatchdog(limit time.Duration, fire func()) *watchdog {
	w := &watchdog{limit: limit, fire: fire, base: time.Now()}
	w.timer = time.AfterFunc(limit, w.look)
	return w
}

func (w *watchdog) touch() { w.last.Store(int64(time.Since(w.base))) }

func (w *watchdog) look() {
	if left := w.limit - (time.Since(w.base) - time.Duration(w.last.Load())); left > 0 {
		w.timer.Reset(left)
		return
	}
	w.fire()
}

func (w *watchdog) stop() { w.timer.Stop() }

// clientConn is the sandbox's end.
type clientConn struct {
	net.Conn
	watch *watchdog
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.watch.touch()
	}
	return n, ofClient(err)
}

func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.watch.touch()
	}
	return n, ofClient(err)
}

// ofClient marks errors but ends and deadlines, which readers compare. Deadlines
// get the standard form: after others, such as yamux's, crypto/tls reads no more.
func ofClient(err error) error {
	var timeout net.Error
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // readers compare, too
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return os.ErrDeadlineExceeded
	}
	return fmt.Errorf("%w: %w", errClient, err)
}

func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// upstream is a connection to a server. It counts and slows down what goes over
// it.
type upstream struct {
	net.Conn
	ctx      context.Context // ends the waiting
	meter    *meter
	watch    *watchdog
	addr     netip.AddrPort
	up, down atomic.Int64
	// spare lets the connection outlive the context.
	spare func() bool
	// mute: nothing may come before something was sent. The HTTP transport logs
	// such bytes on the program's own log.
	mute atomic.Bool
	// waits is called before each read, which may take long; its error is the read's.
	waits atomic.Pointer[func() error]
}

func (u *upstream) Read(p []byte) (int, error) {
	if first := u.waits.Load(); first != nil {
		if err := (*first)(); err != nil {
			return 0, err
		}
	}
	n, err := u.Conn.Read(p)
	if n <= 0 {
		return n, err
	}
	if u.mute.Load() {
		return 0, errSpoke
	}
	u.watch.touch()
	u.down.Add(int64(n))
	if over := u.meter.take(u.ctx, &u.meter.down, n); over != nil {
		return 0, over
	}
	return n, err
}

func (u *upstream) Write(p []byte) (int, error) {
	u.mute.Store(false)
	done := 0
	for done < len(p) {
		part := p[done:min(len(p), done+pump.Small)]
		if err := u.meter.take(u.ctx, &u.meter.up, len(part)); err != nil {
			return done, err
		}
		n, err := u.Conn.Write(part)
		done += n
		u.up.Add(int64(n))
		u.watch.touch()
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (u *upstream) CloseWrite() error { return closeWrite(u.Conn) }

// Close ends both directions.
func (u *upstream) Close() error {
	u.spare()
	return u.Conn.Close()
}

// closeWrite ends one direction, or both if the connection knows only that.
func closeWrite(c net.Conn) error {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Close()
}

// abort ends a connection so that the other end does not take it for the end of
// what was sent.
func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	c.Close()
}

// drain takes what still comes until the deadline.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, lingerBytes) }

func setReadDeadline(c net.Conn, d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = c.SetReadDeadline(at)
}

// interrupt makes whoever reads the connection return.
func interrupt(c net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }
