package wording

import (
	"math"
	"strings"

	"agentbox/internal/sandbox"
)

// ExitCode is a result as one number: c, minus the signal, -9 out of memory, -1 for
// a time-out and where nobody knows.
func ExitCode(r *sandbox.Result) int32 {
	if r.Outcome == sandbox.Lost {
		return -1
	}
	return int32(min(max(r.SignalCode(), math.MinInt32), math.MaxInt32))
}

// Reason is what the number does not tell; dir is the working directory that was
// asked for. Of a command that exited it is why it could not be run.
func Reason(r *sandbox.Result, dir string) string {
	switch r.Outcome {
	case sandbox.TimedOut:
		return TimedOut
	case sandbox.Exited:
		return noDirectory(r, dir)
	case sandbox.Signaled:
		return ""
	}
	return r.Reason
}

// IsFailure reports a result whose reason takes the place of its number where output
// is streamed: the command could not be run, took too long, or nobody knows.
func IsFailure(r *sandbox.Result) bool {
	return r.Outcome != sandbox.OOM && r.Outcome != sandbox.Canceled
}

// Answer is a result that is told at once. Each stream is what was captured of it as
// far as that is told, and a text that follows.
type Answer struct {
	ExitCode             int32
	Stdout, Stderr       []byte
	StdoutEnd, StderrEnd string
	TimedOut             bool
}

// AnswerOf is a result with its output; dir is as in Reason.
func AnswerOf(r *sandbox.Result, dir string) Answer {
	a := Answer{ExitCode: ExitCode(r), TimedOut: r.Outcome == sandbox.TimedOut}
	a.Stdout, a.StdoutEnd = captured(r.Stdout, r.StdoutTruncated)
	a.Stderr, a.StderrEnd = captured(r.Stderr, r.StderrTruncated)
	why := Reason(r, dir)
	switch {
	case why == "":
	case r.Outcome == sandbox.Exited: // which stderr has in other words
		a.ExitCode, a.Stderr, a.StderrEnd = -1, nil, why
	case a.StderrEnd != "" || len(a.Stderr) > 0 && a.Stderr[len(a.Stderr)-1] != '\n':
		a.StderrEnd += "\n" + why
	default:
		a.StderrEnd = why
	}
	return a
}

// captured is output as far as it is told, and what follows it.
func captured(b []byte, truncated bool) (told []byte, end string) {
	if !truncated {
		return b, ""
	}
	return b[:len(b)-SplitLen(b)], CutMark
}

// noDirectory is the text for a working directory in which the command could not
// be run; empty: it could.
func noDirectory(r *sandbox.Result, dir string) string {
	why, ok := strings.CutPrefix(r.Reason, "working directory "+dir+": ")
	if !ok || r.ExitCode != sandbox.ExitNotExecutable {
		return ""
	}
	for _, e := range []OSError{noSuchFile, notADirectory, noPermission} {
		if strings.EqualFold(why, e.text) {
			return e.Of(dir)
		}
	}
	return r.Reason
}
