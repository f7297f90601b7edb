package rest

import (
	"encoding/base64"

	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// ExecResult is how a command ended.
type ExecResult struct {
	ExecID    string    `json:"exec_id"`
	ExitCode  *int      `json:"exit_code" doc:"What it exited with; 128+n after signal n, -1 after a time-out, 137 out of memory; 126 and 127 for a program that can't be run or is not there. null: it runs."`
	Output    string    `json:"output" doc:"stdout and stderr, in the order of arrival."`
	Stdout    string    `json:"stdout"`
	Stderr    string    `json:"stderr"`
	Signal    *int      `json:"signal" doc:"The signal that ended it."`
	TimedOut  bool      `json:"timed_out"`
	OOMKilled bool      `json:"oom_killed"`
	Truncated Truncated `json:"truncated"`
	Reason    string    `json:"reason" doc:"Why it ended, in words, if exit_code does not say it all."`
	Duration  Duration  `json:"duration"`
	CPUTime   Duration  `json:"cpu_time" doc:"Of the command and all that it started, as far as known."`
	Memory    int64     `json:"peak_memory" doc:"Of its biggest process, in bytes; 0: not known, as when it is less than what the sandbox's own agent used, some 10 MB."`

	kept  *capture // what the three output fields are written from, if they are empty
	exact bool
}

// Truncated tells which streams had more than was kept.
type Truncated struct {
	Stdout bool `json:"stdout"`
	Stderr bool `json:"stderr"`
}

// resultOf has everything but the output.
func resultOf(r *sandbox.Result) ExecResult {
	b := ExecResult{
		ExecID: r.ExecID, TimedOut: r.Outcome == sandbox.TimedOut, OOMKilled: r.Outcome == sandbox.OOM, Reason: r.Reason,
		Truncated: Truncated{r.StdoutTruncated, r.StderrTruncated},
		Duration:  Duration{Value: r.Duration}, CPUTime: Duration{Value: r.CPUTime}, Memory: r.PeakMemory,
	}
	if r.Outcome == sandbox.Running || r.Outcome == sandbox.Lost {
		return b
	}
	code := r.ShellCode()
	if b.TimedOut {
		code = -1
	}
	b.ExitCode = &code
	if r.Outcome != sandbox.Exited && r.Signal != 0 {
		b.Signal = &r.Signal
	}
	return b
}

// fillKept adds the output that the sandbox still holds; nothing tells in which
// order the two streams came.
func (b *ExecResult) fillKept(r *sandbox.Result, exact bool) {
	b.Stdout = textOrBase64(r.Stdout, r.StdoutTruncated, exact)
	b.Stderr = textOrBase64(r.Stderr, r.StderrTruncated, exact)
	b.Output = textOrBase64(append(r.Stdout[:len(r.Stdout):len(r.Stdout)], r.Stderr...), r.StdoutTruncated || r.StderrTruncated, exact)
}

// cutMark follows a text that had more.
const cutMark = wording.CutMark

// textOrBase64 writes bytes: as a text, in which encoding/json puts U+FFFD for what is
// no UTF-8, or exactly.
func textOrBase64(b []byte, truncated, exact bool) string {
	switch {
	case exact:
		return base64.StdEncoding.EncodeToString(b)
	case truncated:
		return string(b) + cutMark
	default:
		return string(b)
	}
}
