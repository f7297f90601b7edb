// Package doors has what several doors need to translate the core's results and
// errors in the same way.
package doors

import (
	"context"
	"errors"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// CutMark follows a text that had more.
const CutMark = "\n... [output truncated]"

// SplitLen is how many bytes at the end of p may be the begin of a character.
func SplitLen(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if b := p[len(p)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Text is p with U+FFFD for each byte that is no UTF-8.
func Text(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var b strings.Builder
	b.Grow(len(p) + 16)
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		b.WriteRune(r)
		p = p[n:]
	}
	return b.String()
}

// Clip is a text that is shown in another one: at most so many bytes of it.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// MustBeSeen refuses to make what nobody could see afterwards: the audit log tells by
// Err why it could not write its last record.
func MustBeSeen(ctx context.Context, log interface{ Err() error }) error {
	err := log.Err()
	if err == nil {
		return nil
	}
	server.LogError(ctx, err)
	return sandbox.Refuse(errdefs.ErrUnavailable, "the server can't keep its audit log, and makes no sandboxes meanwhile")
}

// SignalCode is a result as one number in which a signal is negative, as process
// libraries have it: -1 after a time-out, -9 out of memory.
func SignalCode(r *sandbox.Result) int {
	switch r.Outcome {
	case sandbox.Exited:
		return r.ExitCode
	case sandbox.TimedOut:
		return -1
	case sandbox.OOM:
		return -9
	default:
		return -r.Signal
	}
}

// GuestError lets callers read what the agent in their sandbox, or the client of
// it, says about a request. It is about their own files and commands, escaped
// and bounded.
func GuestError(err error) error {
	var told *guest.Error
	if err == nil || !errors.As(err, &told) || isDomain(err) {
		return err
	}
	if errdefs.IsInternal(told) || errdefs.IsUnavailable(told) {
		return err // not the caller's to mend
	}
	return sandbox.Refuse(told.Unwrap(), "%s", told.Error())
}

// isDomain reports an error that the base explains better.
func isDomain(err error) bool {
	var state *sandbox.StateError
	var gone *sandbox.GoneError
	var invalid *sandbox.InvalidError
	return errors.As(err, &state) || errors.As(err, &gone) || errors.As(err, &invalid)
}

// Record writes what was done with a sandbox, or not; an empty uid is none. That it
// can't be written does not undo it. Details that are empty are left out.
func Record(ctx context.Context, to server.Recorder, c sandbox.Caller, action audit.Action, uid string, err error, details map[string]string) {
	result := audit.OK
	if err != nil {
		result = string(server.ProblemOf(err).Code)
	}
	maps.DeleteFunc(details, func(_, v string) bool { return v == "" })
	r := audit.Record{Action: action, Owner: c.Owner, KeyID: c.KeyID, Sandbox: uid, RequestID: c.RequestID, Result: result, Details: details}
	if err := to.Write(r); err != nil {
		server.LogError(ctx, err)
	}
}

// Lost is the error of a command that went down with its sandbox, which sb was
// looked up as afterwards.
func Lost(sb *sandbox.Sandbox, res *sandbox.Result) error {
	if sb.Status == sandbox.Destroying {
		return &sandbox.GoneError{Tombstone: sandbox.Tombstone{UID: sb.UID, Short: sb.Short, Reason: sb.Reason, ReasonText: sb.ReasonText}}
	}
	return &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: res.Reason}
}

// Ended tells of a sandbox that stopped or went while something was done in it, rather
// than of what broke by that.
func Ended(ctx context.Context, boxes interface {
	Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error)
}, c sandbox.Caller, id string, err error,
) error {
	if err == nil || !server.BodyEnded(ctx) && (!errdefs.IsUnavailable(err) || ctx.Err() != nil) {
		return err
	}
	sb, look := boxes.Get(context.WithoutCancel(ctx), c, id)
	switch {
	case look != nil:
		return look
	case sb.Status != sandbox.Live:
		return &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: sandbox.NotRunning}
	}
	return err
}

// Chars holds back the bytes of a stream at its end that may be the begin of a
// character. The zero value is ready.
type Chars struct{ tail []byte }

// Whole gives what was held back and p, up to the end of a character.
func (c *Chars) Whole(p []byte) []byte {
	if len(c.tail) > 0 {
		p = append(c.tail, p...)
	}
	whole := len(p) - SplitLen(p)
	c.tail = append([]byte(nil), p[whole:]...)
	return p[:whole]
}

// Rest gives what is held back: the stream is over.
func (c *Chars) Rest() []byte {
	rest := c.tail
	c.tail = nil
	return rest
}
