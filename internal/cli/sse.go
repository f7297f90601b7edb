package cli

import (
	"bufio"
	"bytes"
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

// eventError is the error that a stream of events ends with.
func eventError(data []byte) error {
	var p struct{ Detail, Code string }
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("read an event of the server: %w", err)
	}
	return &apiError{Code: p.Code, Text: p.Detail}
}

// goesOn reports whether what a stream told of may go on without it: the server
// went away, or said that it is about to.
func goesOn(err error) bool {
	var e *apiError
	return errors.Is(err, errBroken) || errors.As(err, &e) && e.Status == 0 && e.Code == "unavailable"
}
