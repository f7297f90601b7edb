package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// exec is one command, from its request until it is forgotten.
type exec struct {
	id      string
	spec    ProcessSpec
	keep    bool
	passing bool // see execs.begin
	m       *execs
	created time.Time // with the monotonic clock

	mu      sync.Mutex
	changed sync.Cond // output, state or readers changed; on mu
	out     [2]ring
	readers map[*reader]struct{}
	proc    Process
	waits   bool // for a free place
	begun   bool // the program runs, or is known not to
	ended   bool // the first process ended: writers must not block any more
	cause   guestv1.Outcome
	reason  string
	failure error // why there is no result: the agent's own failure
	result  *guestv1.ExecResult

	deadline, grace *time.Timer
	finished        chan struct{} // closed when the result is set
	finishedAt      time.Time
}

// Streams of an exec.
const (
	stdout = iota
	stderr
)

func newExec(m *execs, q *guestv1.ExecRequest, ringSize int64) *exec {
	e := &exec{
		id: q.GetExecId(), keep: q.GetKeep(), m: m, created: time.Now(),
		readers: map[*reader]struct{}{}, finished: make(chan struct{}),
	}
	e.changed.L = &e.mu
	for i := range e.out {
		e.out[i] = ring{size: ringSize, limit: q.GetMaxOutput()}
	}
	return e
}

// run starts the command, waits for it and sets its result.
func (e *exec) run() {
	proc, err := e.m.launcher.Start(e.spec, &output{e, stdout}, &output{e, stderr})
	if err != nil {
		e.notStarted(err)
		return
	}
	e.mu.Lock()
	e.proc, e.begun = proc, true
	late := e.result != nil
	e.changed.Broadcast()
	e.mu.Unlock()
	if late { // it was ended while it started
		_ = proc.Signal(int(syscall.SIGKILL), true)
	}
	st := proc.Wait()
	e.unblock()
	proc.Drain()
	if st.NotStarted != nil {
		e.notStarted(st.NotStarted)
		return
	}
	e.finish(st)
}

// unblock lets the command's output go on whether it is read or not.
func (e *exec) unblock() {
	e.mu.Lock()
	e.letGo()
	e.mu.Unlock()
}

// restMax is the most that is still to come of a stream when its command has ended:
// what its pipe can hold (fs.pipe-max-size of Linux), and what the launcher has read of
// it and could not write before.
const restMax = 1<<20 + 1<<20

// letGo is unblock with mu held. What is still to come of a command must not push out
// what a lossless reader has not read.
func (e *exec) letGo() {
	if e.ended {
		return
	}
	e.ended = true
	if len(e.readers) > 0 {
		e.out[stdout].size += restMax
		e.out[stderr].size += restMax
	}
	e.changed.Broadcast()
}

// notStarted reports a program that can't be run as a shell does.
func (e *exec) notStarted(err error) {
	var s *StartError
	if !errors.As(err, &s) {
		e.fail(err) // whoever asks knows its id
		return
	}
	e.unblock()
	w := &output{e, stderr}
	if e.spec.TTY {
		w.stream = stdout
	}
	_, _ = w.Write([]byte(s.Message + "\n"))
	e.mu.Lock()
	e.reason = s.Message
	e.mu.Unlock()
	e.finish(ExitStatus{Code: s.Code})
}

// finish sets the result, unless the exec ended before its program ran.
func (e *exec) finish(st ExitStatus) {
	e.mu.Lock()
	if e.result != nil {
		e.mu.Unlock()
		return
	}
	r := &guestv1.ExecResult{
		Outcome: guestv1.Outcome_OUTCOME_EXITED, ExitCode: int32(st.Code), Signal: int32(st.Signal),
		Reason:     strings.ToValidUTF8(e.reason, "\uFFFD"),
		DurationNs: int64(time.Since(e.created)), CpuNs: int64(st.CPUTime), PeakMemory: st.PeakMemory,
	}
	switch {
	case e.cause != guestv1.Outcome_OUTCOME_RUNNING:
		r.Outcome = e.cause
		if r.Signal == 0 {
			r.Signal = int32(syscall.SIGKILL)
		}
	case st.Signal != 0:
		r.Outcome = guestv1.Outcome_OUTCOME_SIGNALED
	}
	e.close(r, nil)
}

// fail ends an exec that the agent could not handle.
func (e *exec) fail(err error) {
	e.mu.Lock()
	if e.result != nil {
		e.mu.Unlock()
		return
	}
	e.close(&guestv1.ExecResult{Outcome: guestv1.Outcome_OUTCOME_LOST, Reason: strings.ToValidUTF8(err.Error(), "\uFFFD")}, err)
}

// close sets the result. It is called with mu held and releases it.
func (e *exec) close(r *guestv1.ExecResult, err error) {
	e.result, e.failure, e.begun, e.ended = r, err, true, true
	e.finishedAt = time.Now()
	e.countOutput(r)
	stopTimer(e.deadline)
	stopTimer(e.grace)
	close(e.finished)
	e.changed.Broadcast()
	e.mu.Unlock()
	e.m.ended(e)
}

func (e *exec) countOutput(r *guestv1.ExecResult) {
	r.StdoutBytes, r.StderrBytes = e.out[stdout].total, e.out[stderr].total
	r.StdoutTruncated = e.out[stdout].limit > 0 && e.out[stdout].total > e.out[stdout].limit
	r.StderrTruncated = e.out[stderr].limit > 0 && e.out[stderr].total > e.out[stderr].limit
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// end kills the command for a reason that becomes its outcome. A command that
// ended, or is being ended for another reason, is left alone.
func (e *exec) end(cause guestv1.Outcome, reason string) {
	e.mu.Lock()
	if e.result != nil || e.cause != guestv1.Outcome_OUTCOME_RUNNING {
		e.mu.Unlock()
		return
	}
	e.cause, e.reason = cause, reason
	e.letGo() // output that nobody reads must not keep it alive
	proc := e.proc
	e.mu.Unlock()
	if proc != nil {
		_ = proc.Signal(int(syscall.SIGKILL), true)
		return
	}
	// It waits for a free place, or is being started; a start can take long in
	// a sandbox that is short of everything.
	e.m.dequeue(e)
	e.finish(ExitStatus{Signal: int(syscall.SIGKILL)})
}

// signal sends a signal to the first process or to the whole tree.
func (e *exec) signal(sig int, tree bool) error {
	if tree && sig == int(syscall.SIGKILL) {
		e.end(guestv1.Outcome_OUTCOME_CANCELED, "killed by a caller")
	}
	e.mu.Lock()
	proc, done := e.proc, e.result != nil
	e.mu.Unlock()
	switch {
	case proc == nil && !done && !tree:
		return guest.Errorf(errdefs.ErrFailedPrecondition, "exec %s has not started yet", e.id)
	case proc == nil:
		return nil
	case done && !tree:
		return guest.Errorf(errdefs.ErrFailedPrecondition, "exec %s has ended", e.id)
	}
	if err := proc.Signal(sig, tree); err != nil {
		return fmt.Errorf("signal exec %s: %w", e.id, err)
	}
	return nil
}

// info describes the exec; argv is cut to at most argvMax bytes.
func (e *exec) info() *guestv1.ExecInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := &guestv1.ExecInfo{
		ExecId: e.id, Argv: cutArgv(e.spec), User: strings.ToValidUTF8(e.spec.User, "\uFFFD"),
		StartedNs: e.created.UnixNano(), Tty: e.spec.TTY, Result: e.result,
		StdoutFirst: e.out[stdout].first, StdoutEnd: e.out[stdout].end,
		StderrFirst: e.out[stderr].first, StderrEnd: e.out[stderr].end,
	}
	if e.proc != nil {
		i.Pid = int32(e.proc.Pid())
	}
	if i.Result == nil {
		i.Result = &guestv1.ExecResult{DurationNs: int64(time.Since(e.created))}
		e.countOutput(i.Result)
	}
	return i
}

// argvMax bounds what of a command line is shown in lists.
const argvMax = 1 << 10

func cutArgv(s ProcessSpec) [][]byte {
	argv := s.Argv
	if s.Shell != "" {
		argv = []string{"sh", "-c", s.Shell}
	}
	var cut [][]byte
	room := argvMax
	for _, a := range argv {
		if room <= 0 {
			break
		}
		a = a[:min(len(a), room)]
		room -= len(a) + 1
		cut = append(cut, []byte(a))
	}
	return cut
}

// output is the writer of one stream of a command.
type output struct {
	e      *exec
	stream int
}

// Write takes all of p. It blocks while a lossless reader is behind by the size
// of the ring.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	e := o.e
	for len(p) > 0 {
		e.mu.Lock()
		if e.result != nil { // of a process that outlived the command
			e.mu.Unlock()
			return n, nil
		}
		r := &e.out[o.stream]
		room := e.room(o.stream)
		for room <= 0 {
			e.changed.Wait()
			room = e.room(o.stream)
		}
		part := p[:min(int64(len(p)), room)]
		p = p[len(part):]
		grown := r.put(part)
		e.changed.Broadcast()
		e.mu.Unlock()
		e.m.charge(grown)
	}
	return n, nil
}

// room is how much may be written to a stream now without loss to a reader that
// must not lose any.
func (e *exec) room(stream int) int64 {
	const unlimited = maxChunk
	if e.ended {
		return unlimited
	}
	slowest, lossless := int64(0), false
	for rd := range e.readers {
		if rd.lossless && !rd.gone && (!lossless || rd.at[stream] < slowest) {
			slowest, lossless = rd.at[stream], true
		}
	}
	if !lossless {
		return unlimited
	}
	r := &e.out[stream]
	if r.limit > 0 && r.end >= r.limit {
		return unlimited // nothing of it is kept
	}
	size := r.size
	if e.m.overBudget() {
		size = min(size, maxChunk)
	}
	return min(size-(r.end-slowest), unlimited)
}

// ringSize is the size of a ring unless the host says otherwise.
func ringSize(c *guestv1.GuestConfig) int64 {
	n := c.GetRingSize()
	if n <= 0 {
		n = sandbox.DefaultRing
	}
	return min(n, sandbox.MaxRing)
}
