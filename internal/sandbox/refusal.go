package sandbox

import "fmt"

// Refusal is an error whose text is meant for the caller: it has neither paths
// of the host nor secrets. Doors show it as it is; of other errors, but
// [InvalidError], they show the class only.
type Refusal struct {
	// Class is one of the errors of containerd/errdefs.
	Class error
	// Text says what is wrong and, where it can, what to do.
	Text string
	// Code is a finer word than the class's for programs, such as
	// "sandbox_destroyed"; empty: the class's own.
	Code string
	// Reason tells why a sandbox is gone; empty: it isn't the matter.
	Reason Reason
}

// Refuse makes a Refusal of a class.
func Refuse(class error, format string, args ...any) *Refusal {
	return &Refusal{Class: class, Text: fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap gives the error its class.
func (r *Refusal) Unwrap() error { return r.Class }
