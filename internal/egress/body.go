package egress

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errSlow   = errors.New("the body of the request came too slowly")
	errNoMore = errors.New("the body of the request is not wanted any more")
)

// requestBody reads the client's body for the transport, which may go on reading
// after the answer has come. Once stopped, it leaves the connection alone.
type requestBody struct {
	x     *exchange
	first bool // the client is to be told to continue before the first byte

	stopped atomic.Bool
	mu      sync.Mutex // held while reading
	end     bool       // all of it was read
	err     error      // the client's failure
	waited  time.Duration
	got     int
}

func newRequestBody(x *exchange) *requestBody {
	return &requestBody{x: x, first: !x.old && hasToken(x.req.Header["Expect"], "100-continue")}
}

// Read is the transport's.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped.Load() {
		return 0, errNoMore
	}
	if b.end {
		return 0, io.EOF
	}
	if b.first {
		b.first = false
		if err := b.x.writeInterim(http.StatusContinue, nil); err != nil {
			return 0, err
		}
	}
	n, err := b.read(p)
	switch {
	case err == io.EOF: //nolint:errorlint // a wrapped one is no end
		b.end = true
		setReadDeadline(b.x.conn, 0)
		b.x.gone.start()
	case err != nil && !b.stopped.Load():
		b.err = err
	}
	return n, err
}

// read reads, and fails when too little came while it waited.
func (b *requestBody) read(p []byte) (int, error) {
	limit := b.x.p.o.Timeouts.Body
	setReadDeadline(b.x.conn, limit-b.waited)
	if b.stopped.Load() { // whose interruption may have come before the deadline
		return 0, errNoMore
	}
	began := time.Now()
	n, err := b.x.req.Body.Read(p)
	b.waited += time.Since(began)
	b.got += n
	if errors.Is(err, os.ErrDeadlineExceeded) && !b.stopped.Load() {
		return n, errSlow
	}
	if b.got >= minBody {
		b.got, b.waited = 0, 0
	} else if b.waited >= limit && err == nil {
		return n, errSlow
	}
	return n, err
}

// Close is the transport's. The rest of the body is not read: it may have no end.
func (b *requestBody) Close() error {
	b.stopped.Store(true)
	return nil
}

// ended notes that there is no body.
func (b *requestBody) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = true
	b.x.gone.start()
}

// atEnd reports whether all of it was read, without waiting for a reader.
func (b *requestBody) atEnd() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	return b.end
}

// interrupt makes a reader return.
func (b *requestBody) interrupt() {
	b.stopped.Store(true)
	interrupt(b.x.conn)
}

// stop waits until nobody reads. It reports whether all of the body was read, so
// that a request may follow.
func (b *requestBody) stop() bool {
	if b.atEnd() {
		return true
	}
	b.interrupt()
	b.mu.Lock()
	defer b.mu.Unlock()
	setReadDeadline(b.x.conn, 0)
	return b.end
}

func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// watcher finds out that the client went away while its request waits for an
// answer: else what nobody wants any more would hold a place until the server
// answers.
type watcher struct {
	web    *web
	cancel func(error)

	mu      sync.Mutex
	stopped bool
	begin   *time.Timer   // nil: not started
	done    chan struct{} // nil: nobody reads
	timer   *time.Timer   // the client has closed its direction
	begun   bool          // the answer has
}

// watchAfter is how long a request waits before its client is watched: most are
// answered before, and the reader costs as much as the rest of a small request.
const watchAfter = 50 * time.Millisecond

// start watches, once the request was read.
func (g *watcher) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.begin = time.AfterFunc(watchAfter, g.watch)
	}
}

func (g *watcher) watch() {
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return
	}
	g.done = make(chan struct{})
	g.mu.Unlock()
	defer close(g.done)
	g.saw(g.readOn())
}

// readOn reads ahead, also what the client asks for next, until it has no more to say.
// Of one that asks for more than there is room for nothing is found out.
func (g *watcher) readOn() error {
	for r := g.web.r; r.Buffered() < r.Size(); {
		if _, err := r.Peek(r.Buffered() + 1); err != nil {
			return err
		}
	}
	return nil
}

func (g *watcher) saw(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped || err == nil:
	case errors.Is(err, errClient):
		g.cancel(err)
	case errors.Is(err, io.EOF) && !g.begun:
		// Some close their direction and wait for the answer.
		g.timer = time.AfterFunc(halfClosed, func() { g.cancel(errClient) })
	}
}

// answered ends the hurry: a client that is not there shows when it is written to.
func (g *watcher) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

// stop ends it; the reader is free again.
func (g *watcher) stop() {
	g.answered()
	g.mu.Lock()
	g.stopped = true
	done := g.done
	if g.begin != nil {
		g.begin.Stop()
	}
	g.mu.Unlock()
	if done == nil {
		return
	}
	interrupt(g.web.conn)
	<-done
	setReadDeadline(g.web.conn, 0)
}
