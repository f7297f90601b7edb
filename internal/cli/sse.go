package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// event is one of a stream that a server sends.
type event struct {
	name, id string
	data     []byte
}

const (
	// maxEvent bounds one line of a stream of events, in bytes.
	maxEvent = 4 << 20
	// silence is how long a stream may say nothing: servers do every 15 s.
	silence = time.Minute
)

// errBroken is the end of a stream before what it tells of was over.
var errBroken = errors.New("the server went away")

// readEvents calls f with each event until it is done or fails. A connection that
// breaks, or is silent, is errBroken.
func readEvents(body io.ReadCloser, f func(event) (done bool, err error)) error {
	defer body.Close()
	late := time.AfterFunc(silence, func() { _ = body.Close() })
	defer late.Stop()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	var e event
	for lines.Scan() {
		late.Reset(silence)
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			e.data = value
			if done, err := f(e); done || err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("read an event of the server: %w", lines.Err())
	}
	return errBroken
}

// events asks for a stream of events and calls f with each until it is done or fails.
func (r *remote) events(ctx context.Context, q request, f func(event) (done bool, err error)) error {
	resp, err := r.do(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = readEvents(resp.Body, f)
	var said *apiError
	if errors.As(err, &said) {
		said.Text += advice(said, q.path)
	}
	return err
}

// eventsAgain does so at a server that went away and may come back.
func (r *remote) eventsAgain(ctx context.Context, q request, f func(event) (done bool, err error)) error {
	for end := time.Now().Add(backWithin); ; {
		err := r.events(ctx, q, f)
		if !isAway(err) || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(backEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const (
	// backWithin is how long a server that went away may take to come back.
	backWithin = 30 * time.Second
	// backEvery is how often it is tried.
	backEvery = 200 * time.Millisecond
)

// isAway reports whether a request failed because there is no server, or one that
// is not ready.
func isAway(err error) bool {
	var nobody *unreachableError
	var refused *apiError
	return errors.As(err, &nobody) || errors.As(err, &refused) && refused.Status != 0 && refused.Code == "unavailable"
}

// eventError is the error that a stream of events ends with.
func eventError(data []byte) error {
	var p struct{ Detail, Code string }
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("read an event of the server: %w", err)
	}
	return &apiError{Code: p.Code, Text: cmp.Or(p.Detail, "the server ended the stream of events without a reason")}
}

// goesOn reports whether what a stream told of may go on without it: the server
// went away, or said that it is about to.
func goesOn(err error) bool {
	var e *apiError
	return errors.Is(err, errBroken) || errors.As(err, &e) && e.Status == 0 && e.Code == "unavailable"
}
