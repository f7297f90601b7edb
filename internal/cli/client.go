package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// request is one call of the API.
type request struct {
	method, path string // the path is below apiPrefix
	header       http.Header
	in           any       // sent as JSON, if it is not nil
	body         io.Reader // or sent as it is, once
	most         int64     // bounds the answer, in bytes; 0: maxAnswer
	// look is the command that shows whether a change was made whose answer was lost.
	look string
}

const (
	// answerTimeout is how long an answer to a question may take to begin. What
	// changes something may take as long as it takes.
	answerTimeout = time.Minute
	// attempts is how often a request is sent at most.
	attempts = 4
	// maxRetryWait bounds how long a server may have us wait.
	maxRetryWait = 10 * time.Second
)

// call sends a request and decodes the answer into out, if that is not nil.
func (r *remote) call(ctx context.Context, method, path string, in, out any) error {
	return r.callWith(ctx, request{method: method, path: path, in: in}, out)
}

func (r *remote) callWith(ctx context.Context, q request, out any) error {
	resp, err := r.do(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	most := cmp.Or(q.most, maxAnswer)
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
	case int64(len(answer)) > most:
		err = fmt.Errorf("it has more than %d bytes, which is the most that is read", most)
	case out != nil:
		err = json.Unmarshal(answer, out)
	}
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	return nil
}

// send sends a request and returns an answer that is no error; the caller closes
// its body.
func (r *remote) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	return r.do(ctx, request{method: method, path: path, in: in})
}

// do sends a request, again where that can't do a thing twice, and returns an
// answer that is no error; the caller closes its body.
func (r *remote) do(ctx context.Context, q request) (*http.Response, error) {
	var text []byte
	if q.in != nil {
		var err error
		if text, err = json.Marshal(q.in); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	for n, sent := 1, false; ; n++ {
		resp, err := r.try(ctx, q, text)
		wait, again := q.again(n, err)
		sent = sent || !nobodyThere(err)
		if err == nil || !again {
			return resp, q.unsure(sent, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// again reports whether a request that failed for the nth time is worth another
// try, and when.
func (q *request) again(n int, err error) (wait time.Duration, ok bool) {
	if n >= attempts || q.body != nil {
		return 0, false
	}
	repeatable := q.asks() || q.header.Get(idempotencyKey) != ""
	wait = 100 * time.Millisecond << (n - 1)
	var refused *apiError
	switch {
	case errors.As(err, &refused):
		// A server that counts requests has done nothing for this one.
		ok = refused.Code == "rate_limited" || repeatable && refused.Code == "unavailable"
		wait = max(wait, refused.retryAfter)
		return wait, ok && refused.retryAfter <= maxRetryWait
	case nobodyThere(err):
		return 0, false
	default:
		var lost *unreachableError
		return wait, repeatable && errors.As(err, &lost)
	}
}

// asks reports a request that changes nothing.
func (q *request) asks() bool { return q.method == http.MethodGet || q.method == http.MethodHead }

// unsure is err with what to do when it is the lack of an answer to a change that a
// server may have got: whoever repeats the command might do it twice.
func (q *request) unsure(sent bool, err error) error {
	var lost *unreachableError
	if !sent || q.asks() || !errors.As(err, &lost) {
		return err
	}
	return &unreachableError{where: lost.where, hint: maybeDone(q.look), err: lost.err}
}

// maybeDone says what to do when nobody knows whether a change was made.
func maybeDone(look string) string {
	if look == "" {
		return "it may have been done all the same: look before you repeat it"
	}
	return "it may have been done all the same: see " + look + " before you repeat it"
}

// nobodyThere reports whether a request did not get as far as to a server.
func nobodyThere(err error) bool {
	var dial *net.OpError
	var stranger *tls.CertificateVerificationError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &stranger)
}

const idempotencyKey = "Idempotency-Key"

// try sends a request once.
func (r *remote) try(ctx context.Context, q request, text []byte) (*http.Response, error) {
	body := q.body
	if text != nil {
		body = bytes.NewReader(text)
	}
	sent, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(sent, q.method, r.base+apiPrefix+q.path, body)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	for name, values := range q.header {
		req.Header[name] = values
	}
	if text != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	r.authorize(req.Header)
	if q.method == http.MethodGet {
		late := time.AfterFunc(answerTimeout, func() { cancel(fmt.Errorf("it did not answer in %v", answerTimeout)) })
		defer late.Stop()
	}
	resp, err := r.client.Do(req)
	switch {
	case ctx.Err() != nil:
		cancel(nil)
		return nil, context.Cause(ctx)
	case err != nil:
		if late := context.Cause(sent); late != nil {
			err = late
		}
		cancel(nil)
		return nil, r.unreachable(err)
	}
	resp.Body = closing{resp.Body, func() { cancel(nil) }}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return nil, r.unreachable(err)
	}
	return nil, r.refusal(ctx, q.path, resp, answer)
}

// maxProblem bounds an error that a server sends, in bytes.
const maxProblem = 1 << 20

func (r *remote) authorize(h http.Header) {
	if r.key != "" {
		h.Set("Authorization", "Bearer "+r.key)
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

// pages reads a whole list.
func pages[T any](ctx context.Context, r *remote, path string, query url.Values) ([]T, error) {
	all := []T{}
	query.Set("limit", strconv.Itoa(maxPage))
	for {
		page, next, err := onePage[T](ctx, r, path, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next == "" {
			return all, nil
		}
		query.Set("cursor", next)
	}
}

// maxPage is the most that a server gives at once.
const maxPage = 1000

func onePage[T any](ctx context.Context, r *remote, path string, query url.Values) (items []T, next string, err error) {
	var page struct {
		Items      []T     `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}
	if err := r.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
		return nil, "", err
	}
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return page.Items, next, nil
}

// inSandbox is the path of a sandbox's route.
func inSandbox(id string, parts ...string) string {
	p := "/sandboxes/" + url.PathEscape(id)
	for _, part := range parts {
		p += "/" + url.PathEscape(part)
	}
	return p
}
