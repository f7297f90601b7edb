package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// output is that of a command, which this process shows as it comes, also from a
// server that was away.
type output struct {
	app  *App
	r    *remote
	box  string
	only string // stdout or stderr; empty: both
	// last is the id of the last event with output, to go on from: how much of each
	// stream was shown. Empty: nothing.
	last string
}

// outputEvent is what an event of a command tells.
type outputEvent struct {
	execEnd
	Data []byte `json:"data_base64"`
}

var (
	streamNames = [2]string{"stdout", "stderr"}
	streamWords = [2]string{"standard output", "standard error"}
)

// maxLost is how often output may be overtaken before it is begun with: a command
// that says more than can be read is not followed for ever.
const maxLost = 10

// show reads an event and shows what it has of the output.
func (o *output) show(e event) (d outputEvent, err error) {
	if e.name == "error" {
		return d, eventError(e.data)
	}
	if err := json.Unmarshal(e.data, &d); err != nil {
		return d, fmt.Errorf("read an event of the server: %w", err)
	}
	for i, to := range [2]io.Writer{o.app.Stdout, o.app.Stderr} {
		if e.name == streamNames[i] {
			_, err = to.Write(d.Data)
			o.last = e.id // other events have none
		}
	}
	return d, err
}

// request asks for the output that did not come yet.
func (o *output) request(execID string) request {
	q := url.Values{"encoding": {"base64"}}
	if o.only != "" {
		q.Set("stream", o.only)
	}
	h := http.Header{"Accept": {"text/event-stream"}}
	if o.last != "" {
		h.Set("Last-Event-ID", o.last)
	}
	return request{method: http.MethodGet, path: inSandbox(o.box, "execs", execID, "output") + "?" + q.Encode(), header: h}
}

// again goes on where err ended it, as often as the server goes away.
func (o *output) again(ctx context.Context, execID string, err error, take func(event) (bool, error)) error {
	for lost := 0; ctx.Err() == nil; {
		switch {
		case isLost(err) && lost < maxLost:
			lost++
			if err := o.skip(ctx, execID, err); err != nil {
				return err
			}
		case !goesOn(err):
			return err
		}
		err = o.r.eventsAgain(ctx, o.request(execID), take)
	}
	return err
}

// isLost reports whether a server has not any more what it was asked for.
func isLost(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Code == "out_of_range"
}

// firstLeft is where output goes on that a server has not any more from an offset on;
// false: err is another.
func firstLeft(err error, offset int64) (first int64, ok bool) {
	var refused *apiError
	if !isLost(err) || !errors.As(err, &refused) || refused.first <= offset {
		return 0, false
	}
	return refused.first, true
}

// skip passes over the output that is not there any more and says how much that
// is. When it is all there, cause stays.
func (o *output) skip(ctx context.Context, execID string, cause error) error {
	var e execRow
	if err := o.r.call(ctx, http.MethodGet, inSandbox(o.box, "execs", execID), nil, &e); err != nil {
		return err
	}
	var at [2]int64
	if _, err := fmt.Sscanf(o.last, "%d-%d", &at[0], &at[1]); err != nil && o.last != "" {
		return cause // it is no place of ours
	}
	skipped := false
	for i, first := range [2]int64{e.Stdout.First, e.Stderr.First} {
		if first > at[i] && (o.only == "" || o.only == streamNames[i]) {
			o.app.warn(fmt.Errorf("%d bytes of %s are not there any more", first-at[i], streamWords[i]))
			at[i], skipped = first, true
		}
	}
	if !skipped {
		return cause
	}
	o.last = fmt.Sprintf("%d-%d", at[0], at[1])
	return nil
}
