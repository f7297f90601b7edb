package agentbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

const (
	// maxEvent bounds one line of a stream of events, in bytes.
	maxEvent = 4 << 20
	// silence is how long a stream may say nothing: servers do every 15 s.
	silence = time.Minute
)

// sse is one event of a stream.
type sse struct {
	name, id string
	data     []byte // until the next one
}

// errCut is the end of a stream before what it tells of was over.
var errCut = errors.New("the stream was cut")

// events asks for a stream and goes through its events.
func (c *Client) events(ctx context.Context, q call) iter.Seq2[sse, error] {
	return func(yield func(sse, error) bool) {
		header := http.Header{"Accept": {"text/event-stream"}}
		for name, values := range q.header {
			header[name] = values
		}
		q.header = header
		resp, err := c.do(ctx, q) //nolint:bodyclose // readEvents does
		if err != nil {
			yield(sse{}, err)
			return
		}
		err = readEvents(resp.Body, func(e sse) bool { return yield(e, nil) })
		switch {
		case err == nil:
		case ctx.Err() != nil:
			yield(sse{}, context.Cause(ctx))
		case !errors.Is(err, io.EOF):
			yield(sse{}, c.cut(err))
		}
	}
}

// follow goes through a stream whose events are all of one kind, until its end or an error.
func follow[T any](ctx context.Context, c *Client, q call) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for e, err := range c.events(ctx, q) {
			var item T
			switch {
			case err != nil:
			case e.name == "error":
				err = eventError(e.data)
			default:
				if bad := json.Unmarshal(e.data, &item); bad != nil {
					err = fmt.Errorf("read an event of the server: %w", bad)
				}
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// cut is the error of a stream that ended before its time.
func (c *Client) cut(err error) error {
	return &Error{Code: CodeUnreachable, Detail: fmt.Sprintf("read from the server at %s: %v", c.base, err), err: err}
}

// readEvents calls f with each event until that returns false. The orderly end of the
// stream is io.EOF, any other is errCut.
func readEvents(body io.ReadCloser, f func(sse) bool) error {
	defer body.Close()
	late := time.AfterFunc(silence, func() { _ = body.Close() })
	defer late.Stop()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	var e sse
	for lines.Scan() {
		late.Reset(silence)
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			if e.data = value; !f(e) {
				return nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return io.EOF
}
