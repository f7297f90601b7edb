package shell

import (
	"io"
	"strings"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// IsSession tells that an exec is the shell of a session.
func IsSession(execID string) bool { return strings.HasPrefix(execID, sessionPrefix) }

// Tail follows the output of a session's shell up to the end of the command that
// is under way there.
type Tail struct{ out [2]*scanner }

// NewTail passes the command's output on. A stream without a writer is not
// waited for.
func NewTail(out client.Output) *Tail {
	t := &Tail{}
	if out.Stdout != nil {
		t.out[0] = newScanner(anyMark{}, out.Stdout, -1)
	}
	if out.Stderr != nil {
		t.out[1] = newScanner(anyMark{}, out.Stderr, -1)
	}
	return t
}

// Output is where the shell's output is to go.
func (t *Tail) Output() client.Output {
	out := client.Output{Stdout: io.Discard, Stderr: io.Discard}
	if t.out[0] != nil {
		out.Stdout = t.out[0]
	}
	if t.out[1] != nil {
		out.Stderr = t.out[1]
	}
	return out
}

// Wait returns when the command has ended, or when stop is closed because the
// shell has, and reports whether it was the command.
func (t *Tail) Wait(stop <-chan struct{}) bool {
	ended := true
	for _, s := range t.out {
		if s == nil {
			continue
		}
		select {
		case <-s.found:
		case <-stop:
			s.stop()
			select {
			case <-s.found:
			default:
				ended = false
			}
		}
	}
	return ended
}

// Result is the command's, as far as the shell tells; Wait returned true.
func (t *Tail) Result(execID string) *sandbox.Result {
	res := &sandbox.Result{ExecID: execID, Outcome: sandbox.Exited}
	if t.out[0] != nil {
		res.ExitCode = t.out[0].status
	}
	return res
}
