package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"agentbox/internal/auth"
)

// visitors is a listener that bounds its connections. Anybody can open
// connections, and each takes one of the files that the process may have open: who
// takes all of them stops its work and keeps even the local socket closed. So where
// there are as many connections as may be, a new one takes the place of the one on
// which the server has done nothing for anybody for the longest time.
type visitors struct {
	net.Listener
	most int

	mu   sync.Mutex
	all  int
	idle list.List // those on which no request of a known caller is served, oldest first
}

func newVisitors(l net.Listener, most int) *visitors { return &visitors{Listener: l, most: most} }

// Accept implements net.Listener.
func (vs *visitors) Accept() (net.Conn, error) {
	for {
		conn, err := vs.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v := &visitor{Conn: conn, of: vs}
		oldest, ok := vs.add(v)
		if oldest != nil {
			_ = oldest.Conn.Close() // its server finds it closed, and lets go of it
		}
		if ok {
			return v, nil
		}
		_ = conn.Close()
	}
}

// add counts a connection, in the place of the oldest one that may go if there is
// no other; false: there is none.
func (vs *visitors) add(v *visitor) (oldest *visitor, ok bool) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.all >= vs.most {
		front := vs.idle.Front()
		if front == nil {
			return nil, false
		}
		oldest, _ = front.Value.(*visitor)
		oldest.remove()
	}
	vs.all++
	v.place = vs.idle.PushBack(v)
	return oldest, true
}

// visitor is a connection of visitors, whose lock guards it.
type visitor struct {
	net.Conn
	of     *visitors
	place  *list.Element // in idle; nil: it is not there
	served int           // requests of known callers
	gone   bool
}

// remove takes the connection out of the count.
func (v *visitor) remove() {
	if v.gone {
		return
	}
	v.gone = true
	v.of.all--
	if v.place != nil {
		v.of.idle.Remove(v.place)
		v.place = nil
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.of.mu.Lock()
	v.remove()
	v.of.mu.Unlock()
	return v.Conn.Close()
}

// CloseWrite ends the server's direction: net/http lets the client read an answer
// so whose request it did not read to the end.
func (v *visitor) CloseWrite() error {
	if c, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// welcome keeps the connection in its place while a request of a known caller is
// served on it. The nil visitor, of the local socket, needs that not.
func (v *visitor) welcome() (done func()) {
	if v == nil {
		return func() {}
	}
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	v.served++
	if v.place != nil {
		v.of.idle.Remove(v.place)
		v.place = nil
	}
	return func() {
		v.of.mu.Lock()
		defer v.of.mu.Unlock()
		if v.served--; v.served == 0 && !v.gone {
			v.place = v.of.idle.PushBack(v)
		}
	}
}

type visitorKey struct{}

// connContext remembers what a connection is, for its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	ctx = auth.ConnContext(ctx, c)
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if v, ok := c.(*visitor); ok {
		ctx = context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

func visitorOf(ctx context.Context) *visitor {
	v, _ := ctx.Value(visitorKey{}).(*visitor)
	return v
}

// halfOfFiles is half of how many files this process may have open.
func halfOfFiles() int {
	const usual = 1024 // where nobody can say
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return usual / 2
	}
	return int(min(l.Cur, 1<<30)) / 2
}
