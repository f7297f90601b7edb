package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"

	"agentbox/internal/egress/policy"
)

// line is a connection to a server for a client's requests that have no body and go in
// the clear, one after the other. Who serves the client writes each and reads its answer;
// http.Transport hands both to goroutines of its own and waits for them, which takes a
// tenth of the time of a small request. A client that asks for anything else gets a
// Transport, and keeps it.
type line struct {
	up     *upstream
	target policy.Target
	r      *bufio.Reader
	head   int64 // bytes of an answer's head that may still come; < 0: its body comes
	idle   bool  // between two requests
}

// Read is what r reads from.
func (l *line) Read(p []byte) (int, error) {
	if l.head == 0 {
		return 0, errAnswerHead
	}
	if l.head > 0 {
		p = p[:min(int64(len(p)), l.head)]
	}
	n, err := l.up.Read(p)
	if l.head > 0 {
		l.head -= int64(n)
	}
	return n, err
}

var errAnswerHead = fmt.Errorf("the head of the answer has more than %d bytes", maxAnswerHead)

// fits reports whether a request can go by line.
func (x *exchange) fits(req *http.Request) bool {
	return x.transport == nil && x.scheme == "http" && req.Body == http.NoBody && req.Header["Upgrade"] == nil &&
		(x.line == nil || x.line.target == x.f.target)
}

// send sends a request and waits for the head of its answer.
func (x *exchange) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	if !x.fits(req) {
		x.endLine(true)
		return x.roundTripper().RoundTrip(req)
	}
	again := x.line != nil
	if again && x.line.trouble() != nil {
		x.endLine(false)
		again = false
	}
	resp, err := x.byLine(ctx, req)
	if again && errors.Is(err, errUnanswered) && replayable(req.Method) && ctx.Err() == nil {
		resp, err = x.byLine(ctx, req)
	}
	return resp, err
}

// errUnanswered is wrapped by the error of a request whose connection the server gave up
// before it answered.
var errUnanswered = errors.New("no answer came")

// replayable reports whether a request may be sent twice (RFC 9110, section 9.2.1).
func replayable(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// trouble is why the connection can't be used: the server closed it, or spoke out of
// turn, which would be taken for the next answer.
func (l *line) trouble() error {
	if l.r.Buffered() > 0 {
		return errSpoke
	}
	c, ok := l.up.Conn.(syscall.Conn)
	if !ok {
		return errors.New("the connection is no socket, of which nobody knows what came")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var came error
	if err := raw.Control(func(fd uintptr) {
		n, _, came = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); err != nil {
		return err
	}
	switch {
	case errors.Is(came, unix.EAGAIN):
		return nil
	case came != nil:
		return came
	case n == 0:
		return io.EOF
	}
	return errSpoke
}

// byLine sends a request over the line, which it makes if there is none.
func (x *exchange) byLine(ctx context.Context, req *http.Request) (*http.Response, error) {
	if x.line == nil {
		conn, err := x.dialHTTP(req.Context(), "", "")
		if err != nil {
			return nil, err
		}
		x.line = &line{up: conn.(*upstream), target: x.f.target}
		x.line.r = bufio.NewReaderSize(x.line, answerBuffer)
		if err := x.line.trouble(); err != nil {
			x.endLine(false)
			return nil, err
		}
	}
	l := x.line
	l.idle = false
	x.carried(l.up)
	stop := context.AfterFunc(ctx, func() { l.up.Conn.Close() })
	before := l.up.down.Load()
	resp, err := x.ask(l, req)
	if err != nil {
		stop()
		if l.up.down.Load() == before && isGone(err) {
			err = fmt.Errorf("%w: %w", errUnanswered, err)
		}
		x.endLine(false)
		return nil, err
	}
	l.head = -1
	keep := !resp.Close && !req.Close
	body := &lineBody{of: resp.Body, end: func(whole bool) {
		l.idle = stop() && whole && keep
		if !l.idle {
			x.endLine(false)
		}
	}}
	if resp.Body == http.NoBody {
		body.over(true)
	} else {
		resp.Body = body
	}
	return resp, nil
}

// ask writes a request and reads the head of its answer.
func (x *exchange) ask(l *line, req *http.Request) (*http.Response, error) {
	w := bufio.NewWriter(l.up)
	if err := req.Write(w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	l.head = maxAnswerHead
	setReadDeadline(l.up, x.answerTime())
	defer setReadDeadline(l.up, 0)
	for {
		resp, err := http.ReadResponse(l.r, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if err := x.interim(resp.StatusCode, map[string][]string(resp.Header)); err != nil {
			return nil, err
		}
	}
}

// endLine ends the line, if there is one. spare: a Transport gets its connection, if it
// can be used.
func (w *web) endLine(spare bool) {
	l := w.line
	if l == nil {
		return
	}
	w.line = nil
	if spare && l.idle && w.target != nil && l.trouble() == nil {
		w.ready = l.up
		return
	}
	l.up.Close()
}

// lineBody is the body of an answer.
type lineBody struct {
	of  io.ReadCloser
	end func(whole bool) // nil: it was told
}

func (b *lineBody) Read(p []byte) (int, error) {
	n, err := b.of.Read(p)
	if err != nil {
		b.over(err == io.EOF) // a wrapped one is no end
	}
	return n, err
}

// Close lets go of an answer whose rest nobody reads: it may have no end.
func (b *lineBody) Close() error {
	b.over(false)
	return nil
}

func (b *lineBody) over(whole bool) {
	if b.end != nil {
		b.end(whole)
		b.end = nil
	}
}
