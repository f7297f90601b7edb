package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Problem is an error that the REST API answered with. Its class is that of the
// status.
type Problem struct {
	Status int
	Header http.Header     `json:"-"`
	Code   string          `json:"code"`
	Detail json.RawMessage `json:"detail"`
	Reason string          `json:"reason"`
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%d %s %s %s", p.Status, p.Code, p.Detail, p.Reason)
}

// Unwrap is the class.
func (p *Problem) Unwrap() error {
	switch p.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return errdefs.ErrInvalidArgument
	case http.StatusForbidden:
		return errdefs.ErrPermissionDenied
	case http.StatusNotFound:
		return errdefs.ErrNotFound
	case http.StatusConflict:
		return errdefs.ErrFailedPrecondition
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return errdefs.ErrResourceExhausted
	case http.StatusServiceUnavailable:
		return errdefs.ErrUnavailable
	}
	return errdefs.ErrUnknown
}

func problemOf(status int, body []byte) error {
	p := &Problem{Status: status}
	if err := json.Unmarshal(body, p); err != nil {
		return fmt.Errorf("status %d with %.200q: %w", status, body, err)
	}
	return p
}

// Request is Open below /api/v1. What is no success is a *Problem.
func (c *Client) Request(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	resp, err := c.Open(ctx, method, api+path, body, headers...)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	err = problemOf(resp.StatusCode, b)
	var p *Problem
	if errors.As(err, &p) {
		p.Header = resp.Header
	}
	return nil, err
}

// ask sends JSON with the first key and decodes the answer into out, if that is
// not nil.
func (d *Daemon) ask(ctx context.Context, method, path, body string, out any) error {
	resp, err := d.Admin().Request(ctx, method, path, strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: %.200q: %w", method, path, b, err)
	}
	return nil
}

// Event is one server-sent event.
type Event struct{ ID, Name, Data string }

// EventStream is a stream of them.
type EventStream struct {
	body     io.ReadCloser
	lines    *bufio.Reader
	Comments int       // that came so far
	Last     time.Time // when the last byte came
}

// Events sends a request that is answered with events.
func (d *Daemon) Events(ctx context.Context, key, method, path, body string, headers ...string) (*EventStream, error) {
	headers = append(headers, "Accept", "text/event-stream")
	resp, err := d.As(key).Request(ctx, method, path, strings.NewReader(body), headers...)
	if err != nil {
		return nil, err
	}
	if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, "text/event-stream") {
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s answers with %s", method, path, t)
	}
	return &EventStream{body: resp.Body, lines: bufio.NewReader(resp.Body)}, nil
}

// Close ends the stream.
func (s *EventStream) Close() { _ = s.body.Close() }

// Next is the next event; io.EOF after the end of a whole answer.
func (s *EventStream) Next() (Event, error) {
	var ev Event
	for n := 0; ; n++ {
		line, err := s.lines.ReadString('\n')
		s.Last = time.Now()
		if err == io.EOF && (n > 0 || line != "") {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return ev, err
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if ev != (Event{}) {
				return ev, nil
			}
			n = -1
		case field == "":
			s.Comments++
		case field == "id":
			ev.ID = value
		case field == "event":
			ev.Name = value
		case field == "data":
			ev.Data = value
		}
	}
}
