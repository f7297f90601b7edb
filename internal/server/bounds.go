package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
)

// body is a request's body whose sender may not take for ever. A handler that
// ends without having read it leaves the rest to the same deadline.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	rolling bool         // the timeout is for each read, not for all
	until   time.Time    // the deadline
	ended   atomic.Bool  // a deadline would now be that of the client's presence
	over    func() error // why nothing is read any more
	useless atomic.Bool  // nothing takes it any more
	overdue atomic.Bool  // its sender's time was over
	metrics *Metrics

	timer *time.Timer // keeps the deadline with HTTP/2; nil: the connection does

	mu    sync.Mutex // guards the fields below, and rolling and until for the timer
	waits bool       // a read waits for the sender
	left  bool       // the handler has ended
}

// boundBody gives a request with a body a deadline for all of it.
func boundBody(w http.ResponseWriter, r *http.Request, timeout time.Duration, m *Metrics) *body {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: timeout, metrics: m}
	b.over = b.unused
	if r.ProtoMajor > 1 {
		b.timer = time.AfterFunc(timeout, b.late)
	}
	b.extend()
	r.Body = b
	return b
}

var errUseless = fmt.Errorf("%w: nothing takes the body any more", errdefs.ErrUnavailable)

func (b *body) unused() error {
	if b.useless.Load() {
		return errUseless
	}
	return nil
}

// interrupt ends a read that waits; those after it ask over first.
func (b *body) interrupt() {
	if !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Unix(1, 0)) // fails on a broken connection, as the read will
	}
}

// EndBody ends reading the body of the request that ctx belongs to when done is closed,
// even in the middle of a read: whatever takes it is no more. stop is called by the
// handler when it reads no more.
func EndBody(ctx context.Context, done <-chan struct{}) (stop func()) {
	b := scopeOf(ctx).body
	if b == nil {
		return func() {}
	}
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-done:
			b.useless.Store(true)
			b.interrupt()
		case <-stopped:
		}
	}()
	return func() {
		close(stopped)
		<-over // the connection is not the request's any more
	}
}

// endWith ends reading with ctx, even in the middle of a read: what is sent after that
// is not for the handler. done is called when the handler has ended.
func (b *body) endWith(ctx context.Context) (done func()) {
	b.over = func() error {
		if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return b.unused() // of a connection that broke the read tells more
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		if b.over() != nil {
			b.interrupt()
		}
	})
	return func() {
		if !stop() {
			<-ended // the connection is not the request's any more
		}
	}
}

// slack is the part of the timeout by which a deadline may be late, so that not each read
// sets one.
const slack = 8

// extend gives the sender the timeout from now on.
func (b *body) extend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.until.Sub(now) >= b.timeout {
		return
	}
	b.until = now.Add(b.timeout + b.timeout/slack)
	if b.timer != nil {
		b.timer.Reset(b.until.Sub(now))
		return
	}
	_ = b.control.SetReadDeadline(b.until) // fails on a broken connection, as the read will
}

// late ends reading when a deadline has passed. With HTTP/2 to set a deadline wakes the
// goroutine that serves the connection, on another processor: measured at a twentieth of
// what a command costs beside the sandbox's work. It would also pass while nothing is read,
// which is not the sender's silence: with HTTP/1.1, too, the next read has a new one.
func (b *body) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left || b.rolling && (!b.waits || time.Until(b.until) > 0) {
		return
	}
	b.interrupt()
}

// await tells late whether a read waits.
func (b *body) await(waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = waits
}

// leave is called when the handler has ended: with HTTP/2 nothing may be set any more, and
// the server itself ends what was not read.
func (b *body) leave() {
	if b == nil || b.timer == nil {
		return
	}
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
}

func (b *body) Read(p []byte) (int, error) {
	if b.rolling && !b.ended.Load() {
		b.extend()
		b.await(true)
		defer b.await(false)
	}
	if err := b.over(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	b.metrics.received.Add(float64(n))
	if over := b.over(); over != nil {
		return n, over
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.overdue.Store(true)
	case err != nil && !errors.Is(err, io.EOF):
		err = &brokenBody{err}
	}
	return n, err
}

// brokenBody is the error of a body that its sender broke off, or wrote wrongly.
type brokenBody struct{ err error }

func (e *brokenBody) Error() string { return "read the body: " + e.err.Error() }

// Unwrap is what went wrong with the connection.
func (e *brokenBody) Unwrap() error { return e.err }

// BodyEnded reports whether EndBody ended the body of a request. HTTP/1.1 ends the
// request's context with it, as if the client were gone.
func BodyEnded(ctx context.Context) bool {
	b := scopeOf(ctx).body
	return b != nil && b.useless.Load()
}

// WhyOfBody is why whatever took the body of the request that ctx belongs to failed with
// err: the time of the body's sender was over, or err itself. HTTP/1.1 ends the request's
// context with that time, as if the client were gone, and who got a half of the body has
// words of its own.
func WhyOfBody(ctx context.Context, err error) error {
	if b := scopeOf(ctx).body; err != nil && b != nil && b.overdue.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

func (route *Route) maxBody() int64 {
	if route.MaxBody > 0 {
		return route.MaxBody
	}
	return MaxBody
}

// bound fits the body's bounds to the route. It ends with ctx. done is called when the
// handler has ended.
func (route *Route) bound(ctx context.Context, w http.ResponseWriter, r *http.Request) (done func()) {
	done = func() {}
	if b, ok := r.Body.(*body); ok {
		b.mu.Lock()
		b.rolling = route.Stream
		b.mu.Unlock()
		done = b.endWith(ctx)
	}
	if !route.Stream && r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, route.maxBody())
	}
	return done
}

// answer is a response whose receiver may not stop taking it, and which knows
// what was sent.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int
	bytes   int64
	metrics *Metrics
	stream  string // its kind; empty: it is none

	mu    sync.Mutex
	due   time.Time // when the write that is on its way must be done; zero: none is
	timer *time.Timer
	armed bool // the timer looks
}

func newAnswer(w http.ResponseWriter, timeout time.Duration, m *Metrics) *answer {
	return &answer{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, metrics: m}
}

// opened counts the answer as a stream from now on, done until then.
func (a *answer) opened(kind string) {
	if a.stream == "" {
		a.stream = kind
		a.metrics.streams.WithLabelValues(kind).Inc()
	}
}

// done is called when nobody writes any more.
func (a *answer) done() {
	if a.stream != "" {
		a.metrics.streams.WithLabelValues(a.stream).Dec()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
}

// extend gives the receiver its time for what the server sends on its own, when the
// handler has ended.
func (a *answer) extend() {
	_ = a.control.SetWriteDeadline(time.Now().Add(a.timeout)) // fails on a broken connection, as the write will
}

// begin gives the receiver its time for one write: an answer may pause as long as it
// likes between two. That is no deadline of the connection, because with HTTP/2 it would
// end the stream at that time, whether something is written or not, and to set one
// and take it back costs as much as the write.
func (a *answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = time.Now().Add(a.timeout)
	switch {
	case a.armed:
		return // it looks again, if need be
	case a.timer == nil:
		a.timer = time.AfterFunc(a.timeout, a.look)
	default:
		a.timer.Reset(a.timeout)
	}
	a.armed = true
}

// end is called when the write is done.
func (a *answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = time.Time{}
}

// look breaks a write off whose time is over.
func (a *answer) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := time.Until(a.due)
	switch {
	case a.due.IsZero():
		a.armed = false
	case left > 0:
		a.timer.Reset(left)
	default:
		_ = a.control.SetWriteDeadline(time.Unix(1, 0)) // fails on a broken connection, as the write does
	}
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status) // sent with the first part of the body, or at the end
}

// maxPiece is what a receiver has its time for, in bytes: who takes a large answer slowly
// takes it all the same.
const maxPiece = 512 << 10

func (a *answer) Write(p []byte) (n int, err error) {
	for len(p) > maxPiece && err == nil {
		var sent int
		sent, err = a.write(p[:maxPiece])
		n += sent
		p = p[sent:]
	}
	if err != nil {
		return n, err
	}
	last, err := a.write(p)
	return n + last, err
}

func (a *answer) write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.begin()
	defer a.end()
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	a.metrics.sent.Add(float64(n))
	return n, err
}

// FlushError sends what is buffered.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.Header().Get("Content-Type") == "text/event-stream" {
		a.opened(streamEvents)
	}
	a.begin()
	defer a.end()
	return a.control.Flush()
}

// Flush sends what is buffered.
func (a *answer) Flush() { _ = a.FlushError() }

// Hijack hands the connection over, without deadlines.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.control.Hijack()
	if err == nil {
		a.status = http.StatusSwitchingProtocols
		a.opened(streamWebSocket)
		err = conn.SetDeadline(time.Time{})
	}
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
