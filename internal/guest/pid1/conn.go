//go:build linux

package pid1

import (
	"net"
	"os"
	"sync"
	"time"
)

// conn is a socket as a net.Conn.
type conn struct {
	*os.File
	socket directSocket
}

func newConn(f *os.File) (conn, error) {
	s, err := newDirectSocket(f)
	return conn{f, s}, err
}

func (c conn) Read(p []byte) (int, error)  { return c.socket.Read(p) }
func (c conn) Write(p []byte) (int, error) { return c.socket.Write(p) }

func (conn) LocalAddr() net.Addr  { return addr{} }
func (conn) RemoteAddr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "unix" }
func (addr) String() string  { return "host" }

// donatedConn is the donated socket during one session. Closing it wakes who
// waits on it and leaves the socket open for the next session.
type donatedConn struct {
	conn
	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // reads and writes under way
}

func (c *donatedConn) Read(p []byte) (int, error)  { return c.call(c.conn.Read, p) }
func (c *donatedConn) Write(p []byte) (int, error) { return c.call(c.conn.Write, p) }

func (c *donatedConn) call(f func([]byte) (int, error), p []byte) (int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	c.calls.Add(1)
	c.mu.Unlock()
	defer c.calls.Done()
	return f(p)
}

// Close ends the session's use of the socket.
func (c *donatedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.conn.SetDeadline(time.Unix(1, 0))
}

// retire closes c and waits for its readers and writers. A reader that was woken
// by the deadline but has not run yet would go on waiting when the next session
// lifts the deadline, and take that session's data.
func (c *donatedConn) retire() {
	_ = c.Close() // it fails only on a socket without a poller
	c.calls.Wait()
}

func (c *donatedConn) SetDeadline(t time.Time) error      { return c.set(c.conn.SetDeadline, t) }
func (c *donatedConn) SetReadDeadline(t time.Time) error  { return c.set(c.conn.SetReadDeadline, t) }
func (c *donatedConn) SetWriteDeadline(t time.Time) error { return c.set(c.conn.SetWriteDeadline, t) }

func (c *donatedConn) set(f func(time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return f(t)
}
