package agentbox

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of errors, for errors.Is. Each [*Error] is of one of them.
var (
	// ErrInvalidArgument: the request is wrong; Field and Allowed say what.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrUnauthenticated: no key, or not a good one.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied: not with this key, or not from here.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrNotFound: not there any more, never was, or somebody else's.
	ErrNotFound = errors.New("not found")
	// ErrSandboxGone: the sandbox was there; Reason says why it is not any more. It is also
	// an ErrNotFound.
	ErrSandboxGone = errors.New("sandbox gone")
	// ErrConflict: it exists, or does not go with how things are. A sandbox that does not
	// run is one, too.
	ErrConflict = errors.New("conflict")
	// ErrAlreadyExists: there is one of that name. It is also an ErrConflict.
	ErrAlreadyExists = errors.New("already exists")
	// ErrNotRunning: the sandbox must run for this. It is also an ErrConflict.
	ErrNotRunning = errors.New("not running")
	// ErrTooLarge: it is larger than what is taken. It is also an ErrInvalidArgument.
	ErrTooLarge = errors.New("too large")
	// ErrOutOfRange: an offset that is not there; FirstOffset is the first that is. It is
	// also an ErrInvalidArgument.
	ErrOutOfRange = errors.New("out of range")
	// ErrUnsupported: this server can't do or enforce it.
	ErrUnsupported = errors.New("unsupported")
	// ErrLimitExceeded: of the server or of the owner. It is also an ErrRateLimited.
	ErrLimitExceeded = errors.New("limit exceeded")
	// ErrRateLimited: too much for now; RetryAfter says when to come back.
	ErrRateLimited = errors.New("rate limited")
	// ErrUnavailable: there is no server, or it can't now.
	ErrUnavailable = errors.New("unavailable")
	// ErrInternal: the server's own fault; its log has more under the request id.
	ErrInternal = errors.New("internal")
)

// CodeUnreachable is the code of an error that no server sent: there was no answer, or
// not the whole of it.
const CodeUnreachable = "unreachable"

// Error is what a server refused, or the lack of its answer.
type Error struct {
	Status    int    // of HTTP; 0: no server said so, or it came in a stream
	Code      string // the server's, such as not_found
	Detail    string // in words
	Field     string // of ErrInvalidArgument: what is wrong
	Allowed   string // and what would not be
	Reason    string // of ErrNotFound: why a sandbox is gone, where that is known
	RequestID string // by which the server's log and audit name the request
	// RetryAfter is how long the server wants to be left alone; 0: it did not say.
	RetryAfter time.Duration
	// FirstOffset, of ErrOutOfRange, is the first offset that is there.
	FirstOffset int64
	// MaybeDone, of an answer that was lost: the server may have done it all the same.
	MaybeDone bool

	err error
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Detail
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.MaybeDone {
		text += " (it may have been done all the same)"
	}
	return text
}

// Unwrap is what went wrong on this side of the connection, if it did.
func (e *Error) Unwrap() error { return e.err }

// kinds of the codes that servers send.
var kinds = map[string][]error{
	"invalid_value": {ErrInvalidArgument}, "invalid_request": {ErrInvalidArgument}, "method_not_allowed": {ErrInvalidArgument},
	"unsupported_media_type": {ErrInvalidArgument}, "unauthenticated": {ErrUnauthenticated}, "forbidden": {ErrPermissionDenied},
	"not_found": {ErrNotFound}, "sandbox_destroyed": {ErrSandboxGone, ErrNotFound}, "sandbox_expired": {ErrSandboxGone, ErrNotFound},
	"already_exists": {ErrAlreadyExists, ErrConflict}, "conflict": {ErrConflict}, "not_running": {ErrNotRunning, ErrConflict},
	"too_large": {ErrTooLarge, ErrInvalidArgument}, "out_of_range": {ErrOutOfRange, ErrInvalidArgument}, "unsupported": {ErrUnsupported},
	"limit_exceeded": {ErrLimitExceeded, ErrRateLimited}, "quota_exceeded": {ErrLimitExceeded, ErrRateLimited}, "rate_limited": {ErrRateLimited},
	"unavailable": {ErrUnavailable}, "timeout": {ErrUnavailable}, CodeUnreachable: {ErrUnavailable}, "canceled": {ErrUnavailable},
	"internal": {ErrInternal},
}

// kindsOfStatus are those of answers without a code, such as a proxy's.
var kindsOfStatus = map[int][]error{
	http.StatusUnauthorized: {ErrUnauthenticated}, http.StatusForbidden: {ErrPermissionDenied}, http.StatusNotFound: {ErrNotFound},
	http.StatusRequestTimeout: {ErrUnavailable}, http.StatusConflict: {ErrConflict}, http.StatusRequestEntityTooLarge: {ErrTooLarge, ErrInvalidArgument},
	http.StatusRequestedRangeNotSatisfiable: {ErrOutOfRange, ErrInvalidArgument}, http.StatusTooManyRequests: {ErrRateLimited},
	http.StatusBadGateway: {ErrUnavailable}, http.StatusServiceUnavailable: {ErrUnavailable}, http.StatusGatewayTimeout: {ErrUnavailable},
}

// Is compares with the kinds of errors.
func (e *Error) Is(target error) bool {
	return slices.Contains(e.kinds(), target)
}

func (e *Error) kinds() []error {
	if of, ok := kinds[e.Code]; ok {
		return of
	}
	if of, ok := kindsOfStatus[e.Status]; ok {
		return of
	}
	if e.Status >= 400 && e.Status < 500 {
		return []error{ErrInvalidArgument}
	}
	return []error{ErrInternal}
}

// unreachable is the lack of an answer.
func (c *Client) unreachable(err error, change bool) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &Error{Code: CodeUnreachable, Detail: fmt.Sprintf("reach the server at %s: %v", c.base, err), MaybeDone: change && !neverSent(err), err: err}
}

// problem is the body of an error.
type problem struct {
	Detail    json.RawMessage `json:"detail"`
	Code      string          `json:"code"`
	Field     string          `json:"field"`
	Allowed   string          `json:"allowed"`
	Reason    string          `json:"reason"`
	RequestID string          `json:"request_id"`
}

// refusal reads a server's error, in both forms that the API has.
func refusal(resp *http.Response, body []byte) *Error {
	var p problem
	_ = json.Unmarshal(body, &p) // what is no JSON is a proxy's
	e := p.asError()
	e.Status = resp.StatusCode
	if e.Detail == "" {
		e.Detail = "the server answered " + resp.Status
	}
	if e.RequestID == "" {
		e.RequestID = resp.Header.Get("X-Request-ID")
	}
	if n, err := strconv.ParseInt(resp.Header.Get("X-First-Offset"), 10, 64); err == nil {
		e.FirstOffset = n
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64); err == nil && n >= 0 {
		e.RetryAfter = min(time.Duration(n), math.MaxInt64/time.Second) * time.Second
	}
	return e
}

func (p *problem) asError() *Error {
	e := &Error{Code: p.Code, Field: p.Field, Allowed: p.Allowed, Reason: p.Reason, RequestID: p.RequestID}
	var fields []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	switch {
	case json.Unmarshal(p.Detail, &e.Detail) == nil:
	case json.Unmarshal(p.Detail, &fields) == nil && len(fields) > 0: // the form of 422
		e.Field = strings.TrimSpace(fmt.Sprintln(fields[0].Loc...))
		e.Detail = e.Field + ": " + fields[0].Msg
	}
	return e
}

// eventError is the error that a stream of events ends with.
func eventError(data []byte) error {
	var p problem
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("read an event of the server: %w", err)
	}
	return p.asError()
}

// neverSent reports whether a request did not get as far as to a server.
func neverSent(err error) bool {
	var dial *net.OpError
	var stranger *tls.CertificateVerificationError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &stranger)
}
