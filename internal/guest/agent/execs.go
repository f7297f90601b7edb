package agent

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// keepExecs bounds how many finished commands are kept; the oldest go first. A
// caller that runs thousands of short commands an hour wants none of them.
const keepExecs = 1_024

// execs holds all commands: those that run, those that wait for a free place
// and those that ended not long ago.
type execs struct {
	launcher Launcher
	held     atomic.Int64 // memory of all rings
	budget   atomic.Int64
	running  sync.WaitGroup // goroutines of commands

	mu     sync.Mutex
	closed bool // nothing begins any more
	conf   *guestv1.GuestConfig
	byID   map[string]*exec
	queue  []*exec
	live   int     // that run
	old    []*exec // that ended, oldest first
	sweep  *time.Timer
	idle   *time.Timer // runs when nothing has run for idleAfter
}

// passingRing is the size of the rings of a passing command, in bytes: a pipe and more.
const passingRing = 256 << 10

// idleAfter is longer than the pauses in a series of commands.
const idleAfter = 2 * time.Second

func newExecs(l Launcher, idle func()) *execs {
	m := &execs{launcher: l, byID: map[string]*exec{}}
	if idle == nil {
		idle = func() {}
	}
	m.idle = time.AfterFunc(idleAfter, idle)
	m.configure(&guestv1.GuestConfig{})
	return m
}

func (m *execs) configure(c *guestv1.GuestConfig) {
	m.mu.Lock()
	m.conf = c
	m.mu.Unlock()
	// What commands print must leave the memory to the commands: a sixteenth for
	// all buffers, and in the smallest sandbox one whole ring of each stream.
	m.budget.Store(max(8*sandbox.MiB, c.GetMemoryLimit()/16))
}

func orDefault(v uint32, d int) int {
	if v == 0 {
		return d
	}
	return int(v)
}

// start takes a request of the host. The command runs, or waits for its turn. With
// attach it has a lossless or lossy reader from its first byte on.
func (m *execs) start(q *guestv1.ExecRequest, attach bool) (*exec, *reader, error) {
	return m.begin(q, attach, false)
}

// begin is start; passing: the command is nobody's to find again, and not kept when it
// has ended: who began it forgets it.
func (m *execs) begin(q *guestv1.ExecRequest, attach, passing bool) (*exec, *reader, error) {
	if err := checkRequest(q); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if m.closed {
		return nil, nil, guest.Errorf(errdefs.ErrUnavailable, "the agent was closed")
	}
	if m.byID[q.GetExecId()] != nil {
		return nil, nil, guest.Errorf(errdefs.ErrAlreadyExists, "there is an exec %s already", q.GetExecId())
	}
	free := m.live < orDefault(m.conf.GetMaxExecs(), sandbox.MaxExecs)
	if waiting := len(m.queue); !free && waiting >= orDefault(m.conf.GetMaxQueued(), sandbox.MaxQueuedExecs) {
		return nil, nil, guest.Errorf(errdefs.ErrResourceExhausted, "%d commands run and %d wait already", m.live, waiting)
	}
	size := ringSize(m.conf)
	if passing {
		size = min(size, passingRing)
	}
	e := newExec(m, q, size)
	e.passing = passing
	e.spec = m.spec(q)
	e.waits = !free
	m.byID[e.id] = e
	var rd *reader
	if attach {
		rd = e.attach([2]int64{}, q.GetLossless())
	}
	if d := time.Duration(q.GetTimeoutNs()); d > 0 {
		e.deadline = time.AfterFunc(d, func() { e.end(guestv1.Outcome_OUTCOME_TIMED_OUT, "the time limit of "+d.String()+" passed") })
	}
	if free {
		m.launch(e)
	} else {
		m.queue = append(m.queue, e)
	}
	return e, rd, nil
}

// launch runs e; mu is held.
func (m *execs) launch(e *exec) {
	m.live++
	m.idle.Stop()
	m.running.Add(1)
	go func() {
		defer m.running.Done()
		e.run()
		m.release()
	}()
}

// ended is told by an exec that its result is set.
func (m *execs) ended(e *exec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byID[e.id] != e || e.passing {
		return
	}
	m.old = append(m.old, e)
	m.expire()
	if m.sweep == nil {
		m.sweep = time.AfterFunc(sandbox.KeepResult, m.sweepOld)
	}
}

// release frees a place and lets the next in the queue run.
func (m *execs) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live--
	if len(m.queue) > 0 {
		next := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		m.launch(next)
	}
	if m.live == 0 {
		m.idle.Reset(idleAfter)
	}
}

// dequeue takes e out of the queue if it is there.
func (m *execs) dequeue(e *exec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.queue, e); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
	}
}

func (m *execs) sweepOld() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep = nil
	m.expire()
	if len(m.old) > 0 {
		m.sweep = time.AfterFunc(time.Until(m.old[0].finishedAt.Add(sandbox.KeepResult))+time.Second, m.sweepOld)
	}
}

// expire forgets commands that ended long ago or are too many; mu is held.
func (m *execs) expire() {
	limit := time.Now().Add(-sandbox.KeepResult)
	n := max(len(m.old)-keepExecs, 0)
	for n < len(m.old) && m.old[n].finishedAt.Before(limit) {
		n++
	}
	for _, e := range m.old[:n] {
		m.forget(e)
	}
	m.old = slices.Delete(m.old, 0, n)
}

// forget drops an exec that ended; mu is held.
func (m *execs) forget(e *exec) {
	delete(m.byID, e.id)
	e.mu.Lock()
	defer e.mu.Unlock()
	m.held.Add(-e.dropOutput())
}

// dropOutput frees the rings and returns how much they held; mu is held.
func (e *exec) dropOutput() (freed int64) {
	for i := range e.out {
		freed += e.out[i].drop(e.out[i].end)
	}
	return freed
}

// remove forgets a command that ended.
func (m *execs) remove(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[id]
	if e == nil {
		return notFound(id)
	}
	i := slices.Index(m.old, e)
	if i < 0 {
		return guest.Errorf(errdefs.ErrFailedPrecondition, "exec %s still runs", id)
	}
	m.old = slices.Delete(m.old, i, i+1)
	m.forget(e)
	return nil
}

// discard forgets a passing command that ended.
func (m *execs) discard(e *exec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(e)
}

// rest lets the agent be idle soon, unless a command runs.
func (m *execs) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live == 0 {
		m.idle.Reset(idleAfter)
	}
}

// get gives a command to the host.
func (m *execs) get(id string) (*exec, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[id]; e != nil && !e.passing {
		return e, nil
	}
	return nil, notFound(id)
}

func notFound(id string) error {
	return guest.Errorf(errdefs.ErrNotFound, "there is no exec %s", strings.ToValidUTF8(id, "\uFFFD"))
}

// forHost are the execs that the host may know of, oldest first.
func (m *execs) forHost() []*exec {
	return slices.DeleteFunc(m.list(), func(e *exec) bool { return e.passing })
}

// list returns all execs, oldest first.
func (m *execs) list() []*exec {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*exec, 0, len(m.byID))
	for _, e := range m.byID {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *exec) int { return a.created.Compare(b.created) })
	return all
}

// counts of commands that run and that wait.
func (m *execs) counts() (running, queued int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live, len(m.queue)
}

// endAll ends every command, those in the queue first.
func (m *execs) endAll(reason string) {
	for _, e := range slices.Backward(m.list()) {
		e.end(guestv1.Outcome_OUTCOME_CANCELED, reason)
	}
}

// close ends every command and waits for it.
func (m *execs) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.endAll("the agent was closed")
	m.running.Wait()
	m.mu.Lock()
	stopTimer(m.sweep)
	m.idle.Stop()
	m.mu.Unlock()
}
