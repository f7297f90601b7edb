package sandbox

import "fmt"

// Refusal is an error whose text is meant for the caller: it has neither paths
// of the host nor secrets, and doors show it as it is. Of errors that don't say
// so, doors show the class only.
type Refusal struct {
	// Class is one of the errors of containerd/errdefs.
	Class error
	// Text says what is wrong and, where it can, what to do.
	Text string
}

// Refuse makes a Refusal of a class.
func Refuse(class error, format string, args ...any) *Refusal {
	return &Refusal{Class: class, Text: fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap gives the error its class.
func (r *Refusal) Unwrap() error { return r.Class }
