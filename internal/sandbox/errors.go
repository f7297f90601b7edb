package sandbox

import (
	"fmt"
	"time"
)

// GoneError says that there was such a sandbox, and why it ended. It is "not
// found" for containerd/errdefs.
type GoneError struct{ Tombstone Tombstone }

func (e *GoneError) Error() string {
	t := "sandbox " + e.Tombstone.Short + " is gone: " + string(e.Tombstone.Reason)
	if e.Tombstone.ReasonText != "" {
		t += ": " + e.Tombstone.ReasonText
	}
	return t
}

// NotFound marks the error for errdefs.IsNotFound.
func (*GoneError) NotFound() {}

// StateError says that a sandbox is in a state in which the call can't be done:
// errdefs.IsFailedPrecondition.
type StateError struct {
	Short  string
	Status State
	Text   string // "Sandbox is not running", if that is all there is to say
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%s (sandbox %s is %s)", e.Text, e.Short, e.Status)
}

// FailedPrecondition marks the error for errdefs.
func (*StateError) FailedPrecondition() {}

// NotRunning is what doors show of a sandbox that is to run and does not.
const NotRunning = "Sandbox is not running"

// LimitError says that there is no room for one more sandbox:
// errdefs.IsResourceExhausted.
type LimitError struct {
	// Quota: the limit is the owner's own, not the server's.
	Quota bool
	Text  string
	// RetryAfter is when it makes sense to ask again.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string { return e.Text }

// ResourceExhausted marks the error for errdefs.
func (*LimitError) ResourceExhausted() {}

// Errors of limits ask for patience in this order of magnitude: as long as a
// sandbox needs to go.
const retryAfter = 10 * time.Second

// TooMany is the LimitError of a server or an owner that has most sandboxes.
func TooMany(most int, quota bool) *LimitError {
	return &LimitError{Quota: quota, Text: fmt.Sprintf("Maximum number of sandboxes (%d) reached", most), RetryAfter: retryAfter}
}

// TooLittle is the LimitError of a host that is short of something.
func TooLittle(what string) *LimitError {
	return &LimitError{Text: "The server has too little " + what + " for another sandbox", RetryAfter: retryAfter}
}

// ClashError says that a name, or an id that a caller chose, is in use:
// errdefs.IsAlreadyExists.
type ClashError struct{ Field, Value string }

func (e *ClashError) Error() string {
	return fmt.Sprintf("there is a sandbox with the %s %q already", e.Field, e.Value)
}

// AlreadyExists marks the error for errdefs.
func (*ClashError) AlreadyExists() {}

// ReplayError says that an idempotency key came again with another request:
// errdefs.IsConflict.
type ReplayError struct{}

func (*ReplayError) Error() string {
	return "the idempotency key was used for another request"
}

// Conflict marks the error for errdefs.
func (*ReplayError) Conflict() {}

// DrainingError says that the server is about to end and takes no new
// sandboxes: errdefs.IsUnavailable.
type DrainingError struct{ RetryAfter time.Duration }

func (*DrainingError) Error() string { return "the server is shutting down" }

// Unavailable marks the error for errdefs.
func (*DrainingError) Unavailable() {}
