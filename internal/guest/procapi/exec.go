package procapi

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

const (
	defaultTimeout = 30 * time.Second
	// maxLine is the longest command line that a kernel takes, in bytes: one argument
	// of execve(2), MAX_ARG_STRLEN, without its NUL.
	maxLine = 128<<10 - 1
)

type execRequest struct {
	Command string   `json:"command"`
	Workdir string   `json:"workdir"`
	Timeout *float64 `json:"timeout"` // seconds
}

// command reads a request; not ok: it was answered.
func (a *API) command(w http.ResponseWriter, r *http.Request) (c Command, q execRequest, ok bool) {
	leave, ok := a.decode(w, r, &q)
	if !ok {
		return c, q, false
	}
	leave()
	c = Command{Line: q.Command, Dir: q.Workdir}
	if c.Dir == "" {
		c.Dir = sandbox.WorkspacePath
	}
	switch {
	case c.Line == "":
		fail(w, http.StatusBadRequest, wording.MissingCommand)
	case len(c.Dir) > maxName:
		fail(w, http.StatusBadRequest, fmt.Sprintf("'workdir' has more than %d bytes", maxName))
	case len(c.Line) > maxLine: // it might have to wait for its turn
		fail(w, http.StatusBadRequest, fmt.Sprintf("'command' has more than %d bytes: a file takes more", maxLine))
	default:
		return c, q, true
	}
	return c, q, false
}

// exec runs a command and answers when it has ended.
func (a *API) exec(w http.ResponseWriter, r *http.Request) {
	c, q, ok := a.command(w, r)
	if !ok {
		return
	}
	if c.Timeout, ok = a.timeout(w, q.Timeout); !ok {
		return
	}
	c.MaxOutput = a.options.MaxOutput
	out, errs := newCapture(a.sandbox, c.MaxOutput), newCapture(a.sandbox, c.MaxOutput)
	defer out.free()
	defer errs.free()
	res, err := a.sandbox.Run(r.Context(), c, out, errs)
	switch {
	case r.Context().Err() != nil:
		return // so is its client
	case err != nil:
		res = &sandbox.Result{Outcome: sandbox.Lost, Reason: err.Error()}
	}
	res.Stdout, res.StdoutTruncated = out.b, res.StdoutTruncated || out.full
	res.Stderr, res.StderrTruncated = errs.b, res.StderrTruncated || errs.full
	tell(w, wording.AnswerOf(res, c.Dir))
}

// timeout reads the time that a command may take; not ok: it was answered.
func (a *API) timeout(w http.ResponseWriter, asked *float64) (time.Duration, bool) {
	most := a.options.MaxTimeout
	d := defaultTimeout
	switch {
	case asked == nil || *asked == 0:
		if most > 0 {
			d = min(d, most)
		}
		return d, true
	case *asked < 0:
		fail(w, http.StatusBadRequest, "'timeout' must not be negative")
		return 0, false
	case *asked < math.MaxInt64/float64(time.Second):
		d = max(time.Duration(*asked*float64(time.Second)), 1)
	default:
		d = math.MaxInt64
	}
	if most > 0 && d > most {
		fail(w, http.StatusBadRequest, fmt.Sprintf("'timeout' must not be more than %v", most.Seconds()))
		return 0, false
	}
	return d, true
}

// piece is how much of a text is made JSON at once, in bytes.
const piece = 32 << 10

// tell answers with how a command ended. Output may be large, so its JSON is never
// there as a whole.
func tell(w http.ResponseWriter, a wording.Answer) {
	w.Header().Set("Content-Type", contentJSON)
	to := newPatient(w)
	_, _ = fmt.Fprintf(to, `{"exit_code":%d,"stdout":"`, a.ExitCode)
	quote(to, a.Stdout, a.StdoutEnd)
	_, _ = io.WriteString(to, `","stderr":"`)
	quote(to, a.Stderr, a.StderrEnd)
	_, _ = fmt.Fprintf(to, `","timed_out":%t}`, a.TimedOut)
}

// quote writes the inside of a JSON string. A client that is gone needs none of it.
func quote(w io.Writer, b []byte, end string) {
	t := wording.NewJSONText(w)
	for len(b) > 0 {
		p := b[:min(piece, len(b))]
		if _, err := t.Write(p); err != nil {
			return
		}
		b = b[len(p):]
	}
	_ = t.End(end)
}

// stream runs a command and sends its output as it comes.
func (a *API) stream(w http.ResponseWriter, r *http.Request) {
	c, _, ok := a.command(w, r)
	if !ok {
		return
	}
	c.Timeout = a.options.MaxTimeout
	ctx, gone := context.WithCancel(r.Context())
	defer gone()
	e := newEvents(w, gone)
	defer e.close()
	stdout, stderr := &eventsOf{events: e, kind: "stdout"}, &eventsOf{events: e, kind: "stderr"}
	res, err := a.sandbox.Run(ctx, c, stdout, stderr)
	if err != nil {
		text := err.Error()
		e.send(frame{Type: "error", Data: &text})
		return
	}
	stdout.end("")
	why := wording.Reason(res, c.Dir)
	if why != "" && wording.IsFailure(res) {
		stderr.end("")
		e.send(frame{Type: "error", Data: &why})
		return
	}
	stderr.end(why)
	code := wording.ExitCode(res)
	e.send(frame{Type: "exit", ExitCode: &code})
}
