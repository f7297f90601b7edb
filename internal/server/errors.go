package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
)

// Code is the word for an error that programs match on. The list is closed:
// clients may rely on getting one of these.
type Code string

// The codes.
const (
	CodeInvalidValue     Code = "invalid_value"      // right form, value not allowed; has field and allowed
	CodeInvalidRequest   Code = "invalid_request"    // no HTTP request that makes sense here
	CodeUnauthenticated  Code = "unauthenticated"    // no key, or not a good one
	CodeForbidden        Code = "forbidden"          // not with this key, or from this place
	CodeNotFound         Code = "not_found"          // not there, or somebody else's
	CodeSandboxDestroyed Code = "sandbox_destroyed"  // it was there; has reason
	CodeSandboxExpired   Code = "sandbox_expired"    // it was there until its time was over; has reason
	CodeMethodNotAllowed Code = "method_not_allowed" // Allow has those that are
	CodeTimeout          Code = "timeout"            // the request was not sent in time
	CodeNotRunning       Code = "not_running"        // the sandbox must run for this
	CodeAlreadyExists    Code = "already_exists"
	CodeConflict         Code = "conflict" // with another call, or with how things are
	CodeTooLarge         Code = "too_large"
	CodeUnsupportedMedia Code = "unsupported_media_type"
	CodeOutOfRange       Code = "out_of_range"   // an offset that isn't there
	CodeUnsupported      Code = "unsupported"    // this server can't do or enforce it
	CodeLimitExceeded    Code = "limit_exceeded" // of the server; try again later
	CodeQuotaExceeded    Code = "quota_exceeded" // of the owner
	CodeRateLimited      Code = "rate_limited"   // Retry-After says when to try again
	CodeCanceled         Code = "canceled"       // the client is gone
	CodeUnavailable      Code = "unavailable"    // now; try again later
	CodeInternal         Code = "internal"       // agentbox's fault; the log has more
)

// statuses has every code, its HTTP status, and what is said when the error has
// no text for callers.
var statuses = map[Code]struct {
	status int
	text   string
}{
	CodeInvalidValue:     {http.StatusBadRequest, "a value is not allowed"},
	CodeInvalidRequest:   {http.StatusBadRequest, "the request is not valid"},
	CodeUnauthenticated:  {http.StatusUnauthorized, "an API key is needed"},
	CodeForbidden:        {http.StatusForbidden, "this is not allowed"},
	CodeNotFound:         {http.StatusNotFound, "Not Found"},
	CodeSandboxDestroyed: {http.StatusNotFound, "Sandbox not found"},
	CodeSandboxExpired:   {http.StatusNotFound, "Sandbox not found"},
	CodeMethodNotAllowed: {http.StatusMethodNotAllowed, "Method Not Allowed"},
	CodeTimeout:          {http.StatusRequestTimeout, "the request took too long to arrive"},
	CodeNotRunning:       {http.StatusConflict, "Sandbox is not running"},
	CodeAlreadyExists:    {http.StatusConflict, "there is one already"},
	CodeConflict:         {http.StatusConflict, "this is not possible as things are"},
	CodeTooLarge:         {http.StatusRequestEntityTooLarge, "the request is too large"},
	CodeUnsupportedMedia: {http.StatusUnsupportedMediaType, "the body must be application/json"},
	CodeOutOfRange:       {http.StatusRequestedRangeNotSatisfiable, "the range is not there"},
	CodeUnsupported:      {http.StatusBadRequest, "this server can not do that"},
	CodeLimitExceeded:    {http.StatusTooManyRequests, "a limit is reached"},
	CodeQuotaExceeded:    {http.StatusTooManyRequests, "a quota is reached"},
	CodeRateLimited:      {http.StatusTooManyRequests, "too many requests"},
	CodeCanceled:         {499, "the client is gone"}, // nginx's number for it; nobody is there to see it
	CodeUnavailable:      {http.StatusServiceUnavailable, "the server can not do that now"},
	CodeInternal:         {http.StatusInternalServerError, "internal error"},
}

// Codes are all codes with their statuses, for documents.
func Codes() map[Code]int {
	all := map[Code]int{}
	for c, s := range statuses {
		all[c] = s.status
	}
	return all
}

// Problem is the body of an error.
type Problem struct {
	Detail    string `json:"detail" doc:"What is wrong, in words."`
	Code      Code   `json:"code" doc:"What is wrong, for programs."`
	RequestID string `json:"request_id" doc:"The X-Request-ID of the answer; logs have it, too."`
	Field     string `json:"field,omitempty" doc:"The field or parameter that is wrong."`
	Allowed   string `json:"allowed,omitempty" doc:"What would be allowed."`
	Reason    string `json:"reason,omitempty" doc:"Of a sandbox that is gone: why, such as destroyed, idle, lifetime, oom, crashed or host_restart."`

	status int
	header http.Header
}

func (p *Problem) Error() string { return p.Detail }

// GetHeaders are headers that belong to the error, such as Retry-After.
func (p *Problem) GetHeaders() http.Header { return p.header }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.status }

// NewProblem makes the body of an error; an empty text is the code's own.
func NewProblem(code Code, text string) *Problem {
	s, ok := statuses[code]
	if !ok {
		code, text, s = CodeInternal, "", statuses[CodeInternal]
	}
	if text == "" {
		text = s.text
	}
	return &Problem{Detail: text, Code: code, status: s.status, header: http.Header{}}
}

// ProblemOf is the one place that turns errors into answers. Only texts that
// are meant for callers get out.
func ProblemOf(err error) *Problem {
	var words *reworded
	if errors.As(err, &words) {
		return words.problem()
	}
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	if p := ofDomain(err); p != nil {
		return p
	}
	text := ""
	var refusal *sandbox.Refusal
	if errors.As(err, &refusal) {
		text = refusal.Text
	}
	code := codeOf(err)
	if code == CodeLimitExceeded && refusal == nil {
		// It is no limit of the caller's but the machine that has no more, most
		// often of its disk.
		code, text = CodeUnavailable, "the server has no room left for this"
	}
	p = NewProblem(code, text)
	switch p.Code {
	case CodeUnauthenticated:
		p.header.Set("WWW-Authenticate", challengeOf(err))
	case CodeUnavailable, CodeLimitExceeded, CodeQuotaExceeded:
		p = p.RetryAfter(time.Second)
	}
	return p
}

// ofDomain answers with an error that says more than its class and a text; nil:
// it does not.
func ofDomain(err error) *Problem {
	var (
		invalid  *sandbox.InvalidError
		gone     *sandbox.GoneError
		state    *sandbox.StateError
		limit    *sandbox.LimitError
		clash    *sandbox.ClashError
		replay   *sandbox.ReplayError
		draining *sandbox.DrainingError
		held     *sandbox.VolumeHeldError
		rate     *auth.RateError
		broken   *brokenBody
	)
	switch {
	case errors.As(err, &invalid):
		p := NewProblem(CodeInvalidValue, invalid.Error())
		p.Field, p.Allowed = invalid.Field, invalid.Allowed
		return p
	case errors.As(err, &gone):
		return ofGone(gone)
	case errors.As(err, &state):
		if state.Text == sandbox.NotRunning {
			return NewProblem(CodeNotRunning, sandbox.NotRunning)
		}
		return NewProblem(CodeConflict, state.Error())
	case errors.As(err, &limit):
		code := CodeLimitExceeded
		if limit.Quota {
			code = CodeQuotaExceeded
		}
		return NewProblem(code, limit.Text).RetryAfter(limit.RetryAfter)
	case errors.As(err, &clash):
		p := NewProblem(CodeAlreadyExists, clash.Error())
		p.Field = clash.Field
		return p
	case errors.As(err, &replay):
		return NewProblem(CodeConflict, replay.Error())
	case errors.As(err, &held):
		return NewProblem(CodeConflict, held.Error())
	case errors.As(err, &draining):
		return NewProblem(CodeUnavailable, draining.Error()).RetryAfter(draining.RetryAfter)
	case errors.As(err, &rate):
		return NewProblem(CodeRateLimited, "").RetryAfter(rate.After)
	case errors.As(err, &broken):
		return NewProblem(CodeInvalidRequest, "the body did not arrive whole")
	}
	return nil
}

// ofGone keeps the text that clients look for; code and reason say more.
func ofGone(gone *sandbox.GoneError) *Problem {
	code := CodeSandboxDestroyed
	if r := gone.Tombstone.Reason; r == sandbox.ReasonIdle || r == sandbox.ReasonLifetime {
		code = CodeSandboxExpired
	}
	p := NewProblem(code, "")
	p.Reason = string(gone.Tombstone.Reason)
	return p
}

// RetryAfter adds the header, in whole seconds.
func (p *Problem) RetryAfter(d time.Duration) *Problem {
	p.header.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(d.Seconds(), 1)))))
	return p
}

// challengeOf is how those who are refused with err may come in.
func challengeOf(err error) string {
	var challenge *auth.ChallengeError
	if errors.As(err, &challenge) {
		return challenge.Challenge
	}
	return "Bearer"
}

// reworded is an error with a door's own words and status.
type reworded struct {
	error
	status int
	detail string
}

// Reword lets an error be answered in the words of a door's contract. Its code stays;
// a status of 0 is that of the code.
func Reword(err error, status int, detail string) error { return &reworded{err, status, detail} }

// Unwrap is the error itself.
func (e *reworded) Unwrap() error { return e.error }

func (e *reworded) problem() *Problem {
	p := *ProblemOf(e.error)
	p.Detail = e.detail
	if e.status != 0 {
		p.status = e.status
	}
	return &p
}

// classes stand in order: the first that fits counts.
var classes = []struct {
	is   func(error) bool
	code Code
}{
	{isTooLarge, CodeTooLarge},
	{errdefs.IsInvalidArgument, CodeInvalidValue},
	{errdefs.IsUnauthorized, CodeUnauthenticated},
	{errdefs.IsPermissionDenied, CodeForbidden},
	{errdefs.IsNotFound, CodeNotFound},
	{errdefs.IsAlreadyExists, CodeAlreadyExists},
	{errdefs.IsFailedPrecondition, CodeConflict},
	{errdefs.IsConflict, CodeConflict},
	{errdefs.IsAborted, CodeConflict},
	{errdefs.IsOutOfRange, CodeOutOfRange},
	{errdefs.IsNotImplemented, CodeUnsupported},
	{errdefs.IsResourceExhausted, CodeLimitExceeded},
	{errdefs.IsUnavailable, CodeUnavailable},
	{func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }, CodeTimeout}, // of the connection
	{func(err error) bool { return errors.Is(err, context.Canceled) }, CodeCanceled},
	{func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, CodeUnavailable},
}

func codeOf(err error) Code {
	for _, c := range classes {
		if c.is(err) {
			return c.code
		}
	}
	return CodeInternal
}

func isTooLarge(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge)
}

// Explain is ProblemOf for the request that ctx belongs to. What is agentbox's
// fault goes to the log in full.
func Explain(ctx context.Context, err error) *Problem {
	p := *ProblemOf(err)
	p.RequestID = RequestID(ctx)
	if p.status >= http.StatusInternalServerError {
		LogError(ctx, err)
	}
	return &p
}

// WriteError answers a request with an error.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	p := Explain(r.Context(), err)
	maps.Copy(w.Header(), p.header)
	WriteJSON(w, p.status, p)
}

// WriteJSON answers a request with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}
