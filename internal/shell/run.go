package shell

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Command is what to run in a session.
type Command struct {
	Line string
	// Timeout and MaxOutput are as those of sandbox.Command.
	Timeout   time.Duration
	MaxOutput int64
	// Out is where the output goes; both must be set.
	Out client.Output
	// Offsets, if not nil, is told before any output comes where it stands in
	// that of the session's shell; see [Tail].
	Offsets func(stdout, stderr int64)
	// Begin, if not nil, is called when nothing but it keeps the command from being
	// run. Its error does.
	Begin func() error
}

// Run runs a command in a session of the sandbox uid, after those that are under
// way there. When the time is over, or ctx ends, what the command started is
// killed and the outcome is TimedOut or Canceled; a shell that does not come back
// then is replaced by a new one, and its variables are lost. Until it comes back
// it may go on with what stands behind the killed command in the line. A command
// that ends the shell ends the session.
func (e *Engine) Run(ctx context.Context, a Agent, uid, name string, c Command) (*sandbox.Result, error) {
	unlock, err := e.lock(ctx, uid, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	info, err := find(ctx, a, name)
	if err != nil {
		return nil, err
	}
	if c.Offsets != nil {
		c.Offsets(info.StdoutEnd, info.StderrEnd)
	}
	if c.Begin != nil {
		if err := c.Begin(); err != nil {
			return nil, fmt.Errorf("run in session %s: %w", name, err)
		}
	}
	r := newRun(a, name, info.Pid, c)
	return r.run(ctx, info)
}

// run is one command on its way.
type run struct {
	a      Agent
	name   string
	pid    int // of the shell
	line   string
	limit  time.Duration
	began  time.Time
	out    [2]*scanner
	ended  chan struct{} // closed when the shell has ended, or the session with it
	shell  *sandbox.Result
	broken error
}

func newRun(a Agent, name string, pid int, c Command) *run {
	mark := newMark()
	r := &run{a: a, name: name, pid: pid, limit: c.Timeout, began: time.Now(), ended: make(chan struct{})}
	limit := c.MaxOutput
	if limit == 0 {
		limit = sandbox.DefaultMaxOutput
	}
	if r.limit == 0 {
		r.limit = sandbox.DefaultTimeout
	}
	r.line = lines(c.Line, mark)
	r.out = [2]*scanner{newScanner(exactly(mark), c.Out.Stdout, limit), newScanner(exactly(mark), c.Out.Stderr, limit)}
	return r
}

func (r *run) run(ctx context.Context, info client.ExecInfo) (*sandbox.Result, error) {
	p, err := r.a.Attach(ctx, info.ID, info.StdoutEnd, info.StderrEnd, client.Output{Stdout: r.out[0], Stderr: r.out[1]})
	if err != nil {
		return nil, fmt.Errorf("run in session %s: %w", r.name, err)
	}
	defer p.Abandon()
	go func() {
		defer close(r.ended)
		r.shell, r.broken = p.Wait(context.WithoutCancel(ctx)) // Abandon ends it
	}()
	go func() { _, _ = io.WriteString(p.Stdin(), r.line) }() // a shell that has ended takes nothing
	outcome := r.wait(ctx)
	for _, s := range r.out {
		s.stop()
	}
	return r.result(outcome)
}

// wait waits for the command's end and brings it about.
func (r *run) wait(ctx context.Context) sandbox.Outcome {
	timer := time.NewTimer(r.limit)
	defer timer.Stop()
	outcome := sandbox.TimedOut
	done := r.marks()
	select {
	case <-done:
		return sandbox.Exited
	case <-r.ended:
		return sandbox.Lost
	case <-timer.C:
	case <-ctx.Done():
		outcome = sandbox.Canceled
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*endGrace)
	defer cancel()
	r.killTree(ctx)
	select {
	case <-done:
	case <-r.ended:
	case <-time.After(backGrace):
		r.replace(ctx)
	}
	return outcome
}

// backGrace is how long a shell may take to come back when its command was
// killed.
const backGrace = 2 * time.Second

// marks is closed when both marks have come.
func (r *run) marks() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		for _, s := range r.out {
			select {
			case <-s.found:
			case <-r.ended:
				return
			}
		}
		close(done)
	}()
	return done
}

// killTree kills what the shell has started and not the shell. It runs in the
// sandbox, as root, because the agent knows whole commands only.
func (r *run) killTree(ctx context.Context) {
	p, err := r.a.Start(ctx, ids.Hex(10), sandbox.Command{Shell: killer(r.pid), User: "root", Dir: "/", Timeout: endGrace}, client.Output{})
	if err != nil {
		return // the shell is replaced then
	}
	_, _ = p.Wait(ctx)
	_ = r.a.RemoveExec(ctx, p.ID()) // nobody asked for it; else it is forgotten later
}

// killer kills the processes below a process. It looks until there are none:
// they may start others meanwhile.
func killer(pid int) string {
	return strings.ReplaceAll(`for round in 1 2 3 4 5; do
all=' PID '; more=1
while [ "$more" ]; do
	more=
	for f in /proc/[0-9]*/stat; do
		{ read -r s <"$f"; } 2>/dev/null || continue
		n=${f#/proc/}; n=${n%/stat}; s=${s##*) }; s=${s#* }; s=${s%% *}
		case $all in *" $n "*) continue;; esac
		case $all in *" $s "*) all="$all$n "; more=1;; esac
	done
done
all=${all#' PID '}
[ "$all" ] || break
kill -9 $all 2>/dev/null
done`, "PID", fmt.Sprint(pid))
}

// replace ends the shell and begins another.
func (r *run) replace(ctx context.Context) {
	if end(ctx, r.a, r.name) == nil {
		_ = begin(ctx, r.a, r.name, "") // then there is no session of the name any more, which the next call tells
	}
}

func (r *run) result(outcome sandbox.Outcome) (*sandbox.Result, error) {
	res := &sandbox.Result{
		ExecID: ExecID(r.name), Outcome: outcome, Duration: time.Since(r.began),
		StdoutTruncated: r.out[0].truncated, StderrTruncated: r.out[1].truncated,
	}
	switch outcome {
	case sandbox.Exited:
		res.ExitCode = r.out[0].status
	case sandbox.TimedOut, sandbox.Canceled:
		res.Signal = sigkill
	default:
		if r.broken != nil {
			return nil, fmt.Errorf("run in session %s: %w", r.name, r.broken)
		}
		res.Outcome, res.ExitCode, res.Signal = r.shell.Outcome, r.shell.ExitCode, r.shell.Signal
		res.Reason = "the command ended the session"
	}
	return res, nil
}
