package agentbox

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Command is what to run. What is zero has the server's default.
type Command struct {
	// Line is a command line for the shell, Args a program with its arguments: one of them.
	Line string   `json:"-"`
	Args []string `json:"-"`

	Workdir string            `json:"workdir,omitempty"` // default: the sandbox's
	Env     map[string]string `json:"env,omitempty"`     // added to the sandbox's
	User    string            `json:"user,omitempty"`    // name or number, optionally with :group
	Stdin   []byte            `json:"stdin_base64,omitempty"`
	// OpenStdin leaves the input open behind Stdin, for Process.Write.
	OpenStdin bool `json:"open_stdin,omitempty"`
	// Timeout ends the command with all that it started. Default: an hour; in the
	// background none. At most 24 hours.
	Timeout time.Duration `json:"-"`
	// MaxOutput is how much of each stream is kept, in bytes. Default 10 MB, at most 100 MB;
	// a Stream has no default.
	MaxOutput int64 `json:"max_output,omitempty"`
	// OnDisconnect says what becomes of a command whose client is gone: kill (unless
	// somebody follows it within 5 s), kill_now or keep.
	OnDisconnect string `json:"on_disconnect,omitempty"`
	// TTY gives it a terminal of Cols and Rows; its stderr is then part of its stdout.
	TTY  bool   `json:"tty,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	Rows uint16 `json:"rows,omitempty"`
	// Session runs a Line in this shell session.
	Session string `json:"session,omitempty"`
	// IdempotencyKey is yours: the same command with it runs once within a day, and a
	// repetition has the first one's result (with 64 KiB of its output).
	IdempotencyKey string `json:"-"`
	// Repeatable has the client make such a key, so that it can send the command again when
	// the answer was lost. It costs the server a write to its disk, which is most of the time
	// of a short command. What runs in the background always has a key.
	Repeatable bool `json:"-"`
}

// once gives a request the command's key, if it is to have one.
func (c *Command) once(q call) call {
	if c.IdempotencyKey == "" && !c.Repeatable {
		return q
	}
	return q.once(c.IdempotencyKey)
}

// Sh is a command line for the shell.
func Sh(line string) Command { return Command{Line: line} }

// Program is a program with its arguments, without a shell.
func Program(name string, args ...string) Command {
	return Command{Args: append([]string{name}, args...)}
}

// execution is a command with where it is to run.
type execution struct {
	Command
	detach bool
}

// MarshalJSON writes what a server takes.
func (e execution) MarshalJSON() ([]byte, error) {
	type plain Command
	wire := struct {
		Command any `json:"command"`
		plain
		Timeout *float64 `json:"timeout,omitempty"`
		Detach  bool     `json:"detach,omitempty"`
	}{e.Line, plain(e.Command), inSeconds(e.Timeout), e.detach}
	if e.Args != nil {
		wire.Command = e.Args
	}
	return json.Marshal(wire)
}

// check refuses what a server could not tell from something else.
func (c *Command) check() error {
	if (c.Line == "") == (len(c.Args) == 0) {
		return &Error{Code: "invalid_value", Field: "command", Allowed: "a Line or Args", Detail: "a command needs one of Line and Args"}
	}
	return nil
}

// Result is how a command ended. Output is as the command wrote it, of any bytes.
type Result struct {
	ExecID string
	// ExitCode is what it exited with; 128+n after signal n, -1 after a time-out, 137 out of
	// memory; 126 and 127 for a program that can't be run or is not there.
	ExitCode int
	Stdout   string
	Stderr   string
	// Output is both, in the order of arrival.
	Output    string
	Signal    int // that ended it; 0: none
	TimedOut  bool
	OOMKilled bool
	// StdoutTruncated and StderrTruncated: there was more than was kept.
	StdoutTruncated, StderrTruncated bool
	Reason                           string // why it ended, if the code does not say it all
	Duration                         time.Duration
	CPUTime                          time.Duration // as far as known
	PeakMemory                       int64         // of its biggest process, in bytes; 0: not known
}

// UnmarshalJSON reads what a server sends with the encoding base64.
func (r *Result) UnmarshalJSON(data []byte) error {
	var w struct {
		ExecID    string `json:"exec_id"`
		ExitCode  *int   `json:"exit_code"`
		Stdout    []byte `json:"stdout"`
		Stderr    []byte `json:"stderr"`
		Output    []byte `json:"output"`
		Signal    int    `json:"signal"`
		TimedOut  bool   `json:"timed_out"`
		OOMKilled bool   `json:"oom_killed"`
		Truncated struct {
			Stdout bool `json:"stdout"`
			Stderr bool `json:"stderr"`
		} `json:"truncated"`
		Reason     string  `json:"reason"`
		Duration   float64 `json:"duration"`
		CPUTime    float64 `json:"cpu_time"`
		PeakMemory int64   `json:"peak_memory"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*r = Result{
		ExecID: w.ExecID, Stdout: string(w.Stdout), Stderr: string(w.Stderr), Output: string(w.Output), Signal: w.Signal,
		TimedOut: w.TimedOut, OOMKilled: w.OOMKilled, StdoutTruncated: w.Truncated.Stdout, StderrTruncated: w.Truncated.Stderr,
		Reason: w.Reason, Duration: seconds(w.Duration), CPUTime: seconds(w.CPUTime), PeakMemory: w.PeakMemory,
	}
	if w.ExitCode != nil {
		r.ExitCode = *w.ExitCode
	}
	return nil
}

// ExitError is a command that did not end well, as an error.
type ExitError struct{ Result *Result }

// Error implements error.
func (e *ExitError) Error() string {
	r := e.Result
	switch {
	case r.TimedOut:
		return fmt.Sprintf("the command was ended after %v", r.Duration.Round(time.Millisecond))
	case r.Reason != "":
		return fmt.Sprintf("the command ended with %d: %s", r.ExitCode, r.Reason)
	default:
		return fmt.Sprintf("the command ended with %d", r.ExitCode)
	}
}

// Err is an [*ExitError] unless the command ended with 0.
func (r *Result) Err() error {
	if r.ExitCode != 0 || r.TimedOut || r.OOMKilled {
		return &ExitError{r}
	}
	return nil
}

// exact has output sent as it is.
var exact = url.Values{"encoding": {"base64"}}

// Exec runs a command and waits for its end. A command that fails is a result. When ctx
// ends, the command is ended, too, within 5 s, unless its OnDisconnect is keep.
func (b *Box) Exec(ctx context.Context, cmd Command) (*Result, error) {
	if err := cmd.check(); err != nil {
		return nil, err
	}
	switch {
	case cmd.OnDisconnect != "":
	case cmd.Session != "": // its shell's commands can't be found again
		cmd.OnDisconnect = "kill_now"
	default:
		cmd.OnDisconnect = "kill"
	}
	q := call{method: http.MethodPost, path: b.in("execute"), query: exact, in: execution{Command: cmd}}
	return ask[*Result](ctx, b.c, cmd.once(q))
}

// Background starts a command that runs on when its client is gone.
func (b *Box) Background(ctx context.Context, cmd Command) (*Process, error) {
	if err := cmd.check(); err != nil {
		return nil, err
	}
	q := call{method: http.MethodPost, path: b.in("execute"), query: exact, in: execution{cmd, true}}
	r, err := ask[Result](ctx, b.c, q.once(cmd.IdempotencyKey))
	if err != nil {
		return nil, err
	}
	return b.Process(r.ExecID), nil
}

// Process is a command of the sandbox, by its exec id. Nothing is asked.
func (b *Box) Process(execID string) *Process { return &Process{b, execID} }

// ProcessInfo is a command that runs, or ended within the last hour.
type ProcessInfo struct {
	ExecID    string    `json:"exec_id"`
	State     string    `json:"state"`   // queued, running or ended
	Pid       int       `json:"pid"`     // in the sandbox; 0 while it is queued
	Args      []string  `json:"command"` // the program and its arguments
	User      string    `json:"user"`
	TTY       bool      `json:"tty"`
	StartedAt time.Time `json:"started_at"`
	Stdout    Kept      `json:"stdout"` // which output is still there
	Stderr    Kept      `json:"stderr"`
	Result    *Result   `json:"result"` // nil: it has not ended. Lists leave its output out
}

// Kept is the part of an output stream that is still there, as offsets.
type Kept struct {
	First int64 `json:"first"`
	End   int64 `json:"end"`
}

// Processes goes through the commands of the sandbox, oldest first.
func (b *Box) Processes(ctx context.Context) iter.Seq2[ProcessInfo, error] {
	return pages[ProcessInfo](ctx, b.c, b.in("execs"), nil)
}
