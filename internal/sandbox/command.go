package sandbox

import "time"

// Command is what to run in a sandbox. Strings are bytes as the guest's kernel
// takes them and need not be valid UTF-8.
type Command struct {
	// Argv is the program and its arguments. The program is looked up in the
	// PATH that the command will have. Exactly one of Argv and Shell is set.
	Argv []string
	// Shell is a command line for /bin/sh -c (bash where the image has it).
	Shell string
	// Env is added to the sandbox's environment, "NAME=value".
	Env []string
	// Dir is the working directory. Empty: the sandbox's.
	Dir string
	// User is a name or uid, optionally ":group". Empty: the sandbox's.
	User string
	// Stdin: without it the command reads end-of-file at once.
	Stdin bool
	// TTY gives the command a pseudo-terminal of Cols × Rows (default 80 × 24);
	// standard error is then part of standard output.
	TTY        bool
	Cols, Rows uint16
	// Timeout ends the whole process tree. 0: DefaultTimeout; negative: none
	// (background commands).
	Timeout time.Duration
	// MaxOutput caps the captured bytes per stream. 0: DefaultMaxOutput;
	// negative: none (streams that a client reads as they come).
	MaxOutput int64
	// OnDisconnect tells what becomes of the command when its last client is
	// gone.
	OnDisconnect OnDisconnect
	// Background commands are reported as soon as they run; they have no
	// client, and OnDisconnect is Keep.
	Background bool
}

// OnDisconnect is the fate of a command whose client is gone.
type OnDisconnect int

const (
	// Kill ends the command after DisconnectGrace unless a client comes back.
	Kill OnDisconnect = iota
	// Keep lets the command run on.
	Keep
)

// Outcome is how a command ended. A command that fails is a result, never an
// error: an error means that agentbox could not do its work.
type Outcome int

const (
	// Running: not ended yet.
	Running Outcome = iota
	// Exited: the program ended by itself; ExitCode is its status. A program
	// that was not found or could not be executed is Exited with 127 or 126,
	// as a shell reports it.
	Exited
	// Signaled: a signal ended the program.
	Signaled
	// TimedOut: the deadline passed and the process tree was killed.
	TimedOut
	// OOM: the memory limit was reached and the kernel killed the program.
	OOM
	// Canceled: a caller killed it, or its client went away.
	Canceled
	// Lost: the sandbox ended under it; nobody knows how it would have ended.
	Lost
)

var outcomes = [...]string{"running", "exited", "signaled", "timed_out", "oom", "canceled", "lost"}

func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomes) {
		return "unknown"
	}
	return outcomes[o]
}

// Result is everything known about a command that ended.
type Result struct {
	ExecID   string
	Outcome  Outcome
	ExitCode int // Exited
	Signal   int // Signaled, and what ended a TimedOut or Canceled command
	// Reason says in words what the outcome's name does not ("sh: not found",
	// "memory limit of 256m reached").
	Reason string

	Stdout, Stderr                   []byte // what was captured
	StdoutTruncated, StderrTruncated bool   // the command wrote more

	Duration   time.Duration // wall time from start to end
	CPUTime    time.Duration // user + system, of the whole process tree where known
	PeakMemory int64         // bytes, of the biggest process; 0 when unknown, as when it is less than the agent's own
}

// Numbers that a shell reports for a command which could not be started.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// ShellCode is the result as one number, the way that command lines and REST
// report it: c, 128+signal, 124 for a time-out, 137 for out of memory.
func (r *Result) ShellCode() int {
	switch r.Outcome {
	case Exited:
		return r.ExitCode
	case Signaled, Canceled:
		return 128 + r.Signal
	case TimedOut:
		return 124
	case OOM:
		return 137
	default:
		return 125
	}
}

// SignalCode is the result as one number in which a signal is negative, as process
// libraries have it: -1 after a time-out, -9 out of memory.
func (r *Result) SignalCode() int {
	switch r.Outcome {
	case Exited:
		return r.ExitCode
	case TimedOut:
		return -1
	case OOM:
		return -9
	default:
		return -r.Signal
	}
}
