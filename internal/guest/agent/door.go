package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxVisitors is how many connections a door has at once; others wait until one
	// of them ends. It is more than the commands that may run.
	maxVisitors = 256
	// lastCall is how long connections that were made already are looked for.
	lastCall = 20 * time.Millisecond
	// lookPause is how often it is looked whether the port is free again.
	lookPause = 2 * time.Second
)

// door takes connections to the port of the process API, unless a program of the
// sandbox wants that port: then the program gets them, also those that were made
// before it was noticed, and the API is there again when the program is gone.
type door struct {
	loopback Loopback
	ports    Ports
	srv      *http.Server
	visitors slots
	served   chan net.Conn // for srv
	tasks    sync.WaitGroup
	ctx      context.Context // ends with the door
	cancel   context.CancelFunc

	mu sync.Mutex
	l  Listener // nil: a program has the port
}

// openDoor opens a door. When it returns the API can be reached, unless a program has
// the port.
func openDoor(l Loopback, p Ports, srv *http.Server) *door {
	d := &door{loopback: l, ports: p, srv: srv, visitors: make(slots, maxVisitors), served: make(chan net.Conn)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.listen()
	d.tasks.Go(func() { _ = srv.Serve(visits{d}) }) // until the door closes
	d.tasks.Go(d.run)
	return d
}

func (d *door) close() {
	d.cancel()
	d.leave()
	_ = d.srv.Close()
	d.tasks.Wait()
}

// run waits for connections while the port is free.
func (d *door) run() {
	for d.ctx.Err() == nil {
		if l := d.listening(); l != nil {
			d.take(l)
			d.leave()
			continue
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(lookPause):
			d.listen()
		}
	}
}

// listen begins to wait for connections if no program does.
func (d *door) listen() {
	if d.taken() {
		return
	}
	// Whoever asks whether the port is held waits for the answer: a connection could be
	// made as soon as the socket listens.
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := d.loopback.ListenAside(ProcessAPIAddr)
	if err != nil {
		return // such as a program that shares with nobody
	}
	if d.ctx.Err() != nil {
		_ = l.Close()
		return
	}
	d.l = l
}

func (d *door) listening() Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.l
}

// leave gives the port up.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.l != nil {
		_ = d.l.Close()
		d.l = nil
	}
}

// taken reports whether a program waits on the port. One that can't be seen has to
// share.
func (d *door) taken() bool {
	taken, err := d.loopback.Taken(ProcessAPIAddr)
	return err == nil && taken
}

// holds reports whether connections are for the API, and gives the port up if not.
func (d *door) holds() bool {
	if d.listening() == nil {
		return false
	}
	if d.taken() {
		d.leave()
		return false
	}
	return true
}

// take takes connections until l is closed, or the port is a program's.
func (d *door) take(l Listener) {
	for {
		c, err := d.accept(l, true)
		switch {
		case err != nil:
			return
		case d.taken():
			d.handOver(l, c)
			return
		}
		select {
		case d.served <- c:
		case <-d.ctx.Done():
			_ = c.Close()
			return
		}
	}
}

// accept takes a connection, and a place for it; with wait when there is one.
func (d *door) accept(l Listener, wait bool) (*visitor, error) {
	select {
	case d.visitors <- struct{}{}:
	default:
		if !wait {
			return nil, errFull
		}
		select {
		case d.visitors <- struct{}{}:
		case <-d.ctx.Done():
			return nil, d.ctx.Err()
		}
	}
	for {
		c, err := l.Accept()
		if err == nil {
			return &visitor{PortConn: c, leave: sync.OnceFunc(func() { <-d.visitors })}, nil
		}
		if !wait || errors.Is(err, net.ErrClosed) {
			<-d.visitors
			return nil, err
		}
		time.Sleep(acceptPause) // such as too many open files
	}
}

var errFull = errors.New("there are as many connections as there may be")

// handOver gives the port up, and the connections that were made meanwhile to the
// program that has it.
func (d *door) handOver(l Listener, c *visitor) {
	waiting := []*visitor{c}
	if t, ok := l.(interface{ SetDeadline(time.Time) error }); ok && t.SetDeadline(time.Now().Add(lastCall)) == nil {
		for {
			c, err := d.accept(l, false)
			if err != nil {
				break
			}
			waiting = append(waiting, c)
		}
	}
	d.leave()
	for _, c := range waiting {
		d.tasks.Go(func() { d.pass(c) })
	}
}

// pass leads a connection to the program that has the port.
func (d *door) pass(c *visitor) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(d.ctx, dialTimeout)
	defer cancel()
	to, err := d.ports.Dial(ctx, ProcessAPIAddr.Port())
	if err != nil {
		abort(c.PortConn)
		return
	}
	defer to.Close()
	stop := context.AfterFunc(d.ctx, func() {
		abort(c.PortConn)
		abort(to)
	})
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { splice(c, to) })
	splice(to, c)
	back.Wait()
}

// splice passes one direction on to its end.
func splice(dst, src PortConn) {
	if pumps.Copy(dst, src) != nil {
		abort(dst)
		abort(src)
		return
	}
	_ = dst.CloseWrite()
}

// visitor is a connection that has one of the door's places.
type visitor struct {
	PortConn
	leave func()
}

// Close gives the place back.
func (v *visitor) Close() error {
	defer v.leave()
	return v.PortConn.Close()
}

// visits are the connections for the API, as a listener.
type visits struct{ *door }

// Accept implements net.Listener.
func (v visits) Accept() (net.Conn, error) {
	select {
	case c := <-v.served:
		return c, nil
	case <-v.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (v visits) Close() error { return nil }

// Addr implements net.Listener.
func (v visits) Addr() net.Addr { return net.TCPAddrFromAddrPort(ProcessAPIAddr) }
