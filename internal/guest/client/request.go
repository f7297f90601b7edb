package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/containerd/errdefs"
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

// stream is a stream that this end opened.
type stream struct {
	net.Conn
	s    *Session
	once sync.Once
}

// open opens a stream to the guest.
func (s *Session) open() (*stream, error) {
	s.used.Add(1)
	err := s.checkStreams()
	if err == nil {
		var c net.Conn
		if c, err = s.mux.Open(); err == nil {
			return &stream{Conn: c, s: s}, nil
		}
	}
	s.used.Add(-1)
	return nil, fmt.Errorf("open a stream to the guest: %w: %w", errdefs.ErrUnavailable, err)
}

// abort closes the stream and wakes who waits on it: yamux's Close alone leaves
// readers and writers waiting for the other end.
func (c *stream) abort() {
	_ = c.SetDeadline(past)
	_ = c.Close()
	c.once.Do(func() { c.s.used.Add(-1) })
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
}

func (a *answer) close() {
	a.stop()
	a.conn.abort()
	<-a.sent
}

// do sends a request and returns the answer, whose body ends with the context
// or close. An error answer becomes an error.
func (s *Session) do(ctx context.Context, method, path string, q url.Values, body io.Reader) (*answer, error) {
	u := &url.URL{Scheme: "http", Host: "guest", Path: path, RawQuery: q.Encode()}
	r, err := http.NewRequest(method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	a := &answer{conn: c, stop: context.AfterFunc(ctx, c.abort), sent: make(chan error, 1)}
	go a.send(r)
	head := &boundedReader{c, maxHead}
	a.Response, err = http.ReadResponse(bufio.NewReaderSize(head, 4<<10), r)
	if err != nil {
		return nil, s.explain(ctx, a, err)
	}
	head.left = math.MaxInt64
	if a.StatusCode < 200 || a.StatusCode >= 300 {
		defer a.close()
		return nil, decodeError(a.Response)
	}
	return a, nil
}

// send writes the request while the answer is awaited: the guest may answer
// before it has read the whole body.
func (a *answer) send(r *http.Request) {
	w := bufio.NewWriterSize(a.conn, 64<<10)
	err := r.Write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		a.conn.abort() // a cut body must not look like a whole one
	}
	a.sent <- err
	close(a.sent)
}

// explain tells why there is no answer.
func (s *Session) explain(ctx context.Context, a *answer, read error) error {
	a.stop()
	a.conn.abort()
	sent := <-a.sent
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case sent != nil && !s.mux.IsClosed():
		return fmt.Errorf("send the request: %w", sent)
	}
	return fmt.Errorf("%w: no answer from the guest: %w", errdefs.ErrUnavailable, read)
}

func decodeError(r *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	m := new(guestv1.Error)
	if err != nil || proto.Unmarshal(b, m) != nil || m.GetCode() == "" {
		return fmt.Errorf("%w: the guest answered with status %d", errdefs.ErrInternal, r.StatusCode)
	}
	return guest.DecodeError(m)
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
	r, err := s.do(ctx, http.MethodPost, guest.UnaryPrefix+method, nil, bytes.NewReader(b))
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
