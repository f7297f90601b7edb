package agentbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	apiPrefix = "/api/v1"
	// answerTimeout is how long the answer to a question may take to begin. What
	// changes something takes as long as it takes.
	answerTimeout = time.Minute
	// attempts is how often a request is sent at most.
	attempts = 4
	// maxRetryWait bounds how long a server may have us wait before we ask again
	// ourselves; beyond it the caller decides.
	maxRetryWait = 10 * time.Second
	// maxAnswer bounds an answer in JSON, in bytes. The largest is a command's result: 100
	// MB of each stream, twice, in base64.
	maxAnswer = 600 << 20
	// maxProblem bounds an error that a server sends, in bytes.
	maxProblem = 1 << 20
	// maxPage is the most entries that a server gives at once.
	maxPage = 1000
)

// call is one request of the API.
type call struct {
	method, path string // the path is below apiPrefix
	query        url.Values
	header       http.Header
	in           any       // sent as JSON, if it is not nil
	body         io.Reader // or sent as it is, once
	length       int64     // of body; 0: not known
	// repeatable: it can be sent again, which questions can in any case.
	repeatable bool
}

// once gives the request a key of idempotency, the caller's if there is one.
func (q call) once(key string) call {
	header := http.Header{}
	for name, values := range q.header {
		header[name] = values
	}
	header.Set("Idempotency-Key", cmp.Or(key, rand.Text()))
	q.header, q.repeatable = header, true
	return q
}

func (q *call) asks() bool { return q.method == http.MethodGet || q.method == http.MethodHead }

// ask sends a request and reads the answer.
func ask[T any](ctx context.Context, c *Client, q call) (T, error) {
	var out T
	resp, err := c.do(ctx, q)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := decode(resp.Body, &out); err != nil {
		return out, &Error{Code: CodeUnreachable, Detail: fmt.Sprintf("read the answer of %s: %v", c.base, err), MaybeDone: !q.asks(), err: err}
	}
	return out, nil
}

func decode(r io.Reader, out any) error {
	answer, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(answer) > maxAnswer:
		return fmt.Errorf("it has more than %d bytes", maxAnswer)
	}
	return json.Unmarshal(answer, out)
}

// tell sends a request whose answer says nothing.
func (c *Client) tell(ctx context.Context, q call) error {
	resp, err := c.do(ctx, q)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// do sends a request, again where that can't do a thing twice, and returns an answer
// that is no error; the caller closes its body.
func (c *Client) do(ctx context.Context, q call) (*http.Response, error) {
	var text []byte
	if q.in != nil {
		var err error
		if text, err = json.Marshal(q.in); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	for n := 1; ; n++ {
		resp, err := c.try(ctx, &q, text)
		wait, again := q.again(n, err)
		if err == nil || !again {
			return resp, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// again reports whether a request that failed for the nth time is sent once more, and
// when.
func (q *call) again(n int, err error) (wait time.Duration, ok bool) {
	var e *Error
	if n >= attempts || q.body != nil || !errors.As(err, &e) {
		return 0, false
	}
	// A server that counts requests has done nothing for this one. A quota needs something
	// else to end.
	counted := e.Is(ErrRateLimited) && !e.Is(ErrLimitExceeded)
	ok = counted || (q.repeatable || q.asks()) && e.Is(ErrUnavailable)
	return max(100*time.Millisecond<<(n-1), e.RetryAfter), ok && e.RetryAfter <= maxRetryWait
}

// try sends a request once.
func (c *Client) try(ctx context.Context, q *call, text []byte) (*http.Response, error) {
	body := q.body
	if text != nil {
		body = bytes.NewReader(text)
	}
	sent, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(sent, q.method, c.base+apiPrefix+q.path, body)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("make the request: %w", err)
	}
	c.dress(req, q, text != nil)
	if q.asks() {
		late := time.AfterFunc(answerTimeout, func() { cancel(fmt.Errorf("it did not answer in %v", answerTimeout)) })
		defer late.Stop()
	}
	resp, err := c.http.Do(req)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			resp.Body.Close()
		}
		cancel(nil)
		return nil, context.Cause(ctx)
	case err != nil:
		err = cmp.Or(context.Cause(sent), err)
		cancel(nil)
		return nil, c.unreachable(err, !q.asks())
	}
	resp.Body = closing{resp.Body, func() { cancel(nil) }}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return nil, c.unreachable(err, !q.asks())
	}
	return nil, refusal(resp, answer)
}

// dress writes what goes with a request.
func (c *Client) dress(req *http.Request, q *call, isJSON bool) {
	req.URL.RawQuery = q.query.Encode()
	for name, values := range q.header {
		req.Header[name] = values
	}
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.length > 0 {
		req.ContentLength = q.length
	}
	c.authorize(req.Header)
}

func (c *Client) authorize(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
}

// closing lets go of what belongs to a body when it is closed.
type closing struct {
	io.ReadCloser
	release func()
}

func (c closing) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}

// pages reads a list as far as it is asked for.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := cloned(query) // a list can be read again
		query.Set("limit", strconv.Itoa(maxPage))
		for {
			page, err := ask[struct {
				Items      []T     `json:"items"`
				NextCursor *string `json:"next_cursor"`
			}](ctx, c, call{method: http.MethodGet, path: path, query: query})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			switch {
			case page.NextCursor == nil || *page.NextCursor == "":
				return
			case *page.NextCursor == query.Get("cursor"): // it would never end
				var none T
				yield(none, &Error{Code: "internal", Detail: "a page of the server's list leads to itself"})
				return
			}
			query.Set("cursor", *page.NextCursor)
		}
	}
}

func cloned(q url.Values) url.Values {
	c := url.Values{}
	for name, values := range q {
		c[name] = values
	}
	return c
}

// Collect reads the whole of a list.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}
