package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

const (
	// callTimeout bounds a unary call whose context has no deadline.
	callTimeout = time.Minute
	// maxAnswer bounds the message that answers a unary call: a page of a list
	// is 8 MiB at most.
	maxAnswer = 16 << 20
	// maxOutputAnswer bounds an answer that holds two whole rings.
	maxOutputAnswer = 2*sandbox.MaxRing + 1<<20
	// maxErrorBody bounds an Error message.
	maxErrorBody = 64 << 10
)

// streams are those of one multiplexer.
type streams struct {
	mux   *yamux.Session
	takes time.Duration // how long the guest may take no new one
	used  atomic.Int64  // that this end opened and uses
}

// stream is a stream that this end opened.
type stream struct {
	net.Conn
	of   *streams
	once sync.Once
}

// open opens a stream to the guest.
func (s *streams) open() (*stream, error) {
	s.used.Add(1)
	err := s.check()
	if err == nil {
		frozen := time.AfterFunc(s.takes, func() { _ = s.mux.Close() })
		var c net.Conn
		c, err = s.mux.Open() // it waits when the guest has not taken many before
		frozen.Stop()
		if err == nil {
			return &stream{Conn: c, of: s}, nil
		}
	}
	s.used.Add(-1)
	return nil, fmt.Errorf("open a stream to the guest: %w: %w", errdefs.ErrUnavailable, err)
}

var errTooManyStreams = errors.New("the guest holds too many streams")

// check ends the multiplexer when the guest holds too many streams. Those that
// were closed here but not there count as well: yamux keeps them.
func (s *streams) check() error {
	if s.mux.NumStreams()-int(s.used.Load()) <= guest.MaxGuestStreams {
		return nil
	}
	_ = s.mux.Close()
	return errTooManyStreams
}

// abort closes the stream and wakes who waits on it: yamux's Close alone leaves
// readers and writers waiting for the other end.
func (c *stream) abort() {
	_ = c.SetDeadline(past)
	_ = c.Close()
	c.once.Do(func() { c.of.used.Add(-1) })
}

// boundedReader fails when more than left bytes are read; left may be raised.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: the guest's answer is too large", errdefs.ErrOutOfRange)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// answer is the answer to one request, on a stream of its own.
type answer struct {
	*http.Response
	conn *stream
	stop func() bool
	sent chan error // how sending the request ended
	body *source    // of the request; nil: it has none that is read meanwhile
}

// source is a request's body that remembers why it could not be read.
type source struct {
	r      io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a wrapped one is a cut body
		s.failed.Store(&err)
	}
	return n, err
}

// close returns when nothing of the request's body is read any more.
func (a *answer) close() {
	a.abort()
	if a.body != nil {
		<-a.sent //nolint:errcheck // who gives an answer up does not ask
	}
}

// abort drops the stream, unless the context's end does: a guest that takes nothing
// keeps who drops it waiting.
func (a *answer) abort() {
	if a.stop() {
		a.conn.abort()
	}
}

// do sends a request and returns the answer, whose body ends with the context
// or close. An error answer becomes an error. The request's body is b, or all of
// r if that is not nil.
func (s *Session) do(ctx context.Context, method, path string, q url.Values, b []byte, r io.Reader) (*answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	a := &answer{conn: c, stop: context.AfterFunc(ctx, c.abort), sent: make(chan error, 1)}
	if r != nil {
		a.body = &source{r: r}
	}
	// The guest may answer before it has read the whole body.
	go a.send(head(method, path, q, b, r != nil))
	answer := &boundedReader{c, maxHead}
	a.Response, err = http.ReadResponse(bufio.NewReaderSize(answer, 4<<10), &http.Request{Method: method}) //nolint:bodyclose // answer.close does
	if err != nil {
		return nil, s.explain(ctx, a, err)
	}
	answer.left = math.MaxInt64
	if a.StatusCode < 200 || a.StatusCode >= 300 {
		defer a.close()
		if a.body != nil {
			if cut := a.body.failed.Load(); cut != nil { // what the guest says is of the half that it got
				return nil, fmt.Errorf("send the request: %w", *cut)
			}
		}
		return nil, decodeError(a.Response)
	}
	return a, nil
}

// head is a request up to its body, or with it if it is known already.
func head(method, path string, q url.Values, b []byte, chunked bool) []byte {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	h := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: guest\r\n", method, path)
	if chunked {
		return append(h, "Transfer-Encoding: chunked\r\n\r\n"...)
	}
	return append(fmt.Appendf(h, "Content-Length: %d\r\n\r\n", len(b)), b...)
}

// send writes the request.
func (a *answer) send(head []byte) {
	_, err := a.conn.Write(head)
	if err == nil && a.body != nil {
		err = writeChunks(a.conn, a.body)
	}
	if err != nil {
		a.conn.abort() // a cut body must not look like a whole one
	}
	a.sent <- err
	close(a.sent)
}

// chunk is how much of a body goes at once. net/http would send an eighth of
// it, and each piece costs the guest several system calls.
const chunk = 1 << 20

// writeChunks sends a body in the chunked coding of HTTP, each chunk with one
// write.
func writeChunks(w io.Writer, r io.Reader) error {
	const head = len("100000\r\n") // of the largest
	buf := make([]byte, head+chunk+len("\r\n"))
	for {
		n, err := readFull(r, buf[head:head+chunk])
		if n > 0 {
			size := fmt.Appendf(nil, "%x\r\n", n)
			start := head - len(size)
			copy(buf[start:], size)
			end := head + n + copy(buf[head+n:], "\r\n")
			if _, err := w.Write(buf[start:end]); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF: //nolint:errorlint // a wrapped one is a cut body
			_, err := io.WriteString(w, "0\r\n\r\n")
			return err
		default:
			return err
		}
	}
}

// readFull fills p. Unlike io.ReadFull it returns the reader's own error, so
// that only io.EOF is the end of the body.
func readFull(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// explain tells why there is no answer.
func (s *Session) explain(ctx context.Context, a *answer, read error) error {
	a.abort()
	if ctx.Err() != nil && a.body == nil {
		return context.Cause(ctx)
	}
	sent := <-a.sent
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case sent != nil && !s.mux.IsClosed():
		return fmt.Errorf("send the request: %w", sent)
	}
	return fmt.Errorf("%w: no answer from the guest: %w", errdefs.ErrUnavailable, read)
}

// Told reports that an error is the guest's own answer, not the lack of one.
func Told(err error) bool {
	var told *guest.Error
	return errors.As(err, &told)
}

func decodeError(r *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	m := new(guestv1.Error)
	switch {
	case err == nil && proto.Unmarshal(b, m) == nil && m.GetCode() != "":
		return guest.DecodeError(m)
	case r.StatusCode == http.StatusNotFound: // not in the words of a call
		return fmt.Errorf("%w: the guest's agent is older than the call", errdefs.ErrNotImplemented)
	}
	return fmt.Errorf("%w: the guest answered with status %d", errdefs.ErrInternal, r.StatusCode)
}

// call makes a unary call.
func (s *Session) call(ctx context.Context, method string, q, a proto.Message) error {
	return s.callBounded(ctx, method, q, a, maxAnswer)
}

func (s *Session) callBounded(ctx context.Context, method string, q, a proto.Message, limit int64) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	b, err := proto.Marshal(q)
	if err != nil {
		return fmt.Errorf("%w: encode the request: %w", errdefs.ErrInvalidArgument, err)
	}
	if len(b) > guest.MaxRequest {
		return fmt.Errorf("%w: the request has %d bytes, at most are %d", errdefs.ErrInvalidArgument, len(b), guest.MaxRequest)
	}
	r, err := s.do(ctx, http.MethodPost, guest.UnaryPrefix+method, nil, b, nil)
	if err != nil {
		return err
	}
	defer r.close()
	return readAnswer(ctx, r, a, limit)
}

func readAnswer(ctx context.Context, r *answer, a proto.Message, limit int64) error {
	b, err := io.ReadAll(&boundedReader{r.Body, limit})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: read the guest's answer: %w", errdefs.ErrUnavailable, err)
	}
	if err := proto.Unmarshal(b, a); err != nil {
		return fmt.Errorf("%w: decode the guest's answer: %w", errdefs.ErrInternal, err)
	}
	return nil
}
