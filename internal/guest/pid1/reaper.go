//go:build linux

package pid1

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper owns every wait of the process: commands, and orphans that were
// handed to it as the first process. No other code may wait for a child.
//
// A thread that waits in the kernel takes the runtime's only processor with it
// until that is taken back, which costs a short command more than its start. So
// the end of a command is first looked for where its output ends, and waited for
// only when it takes longer, or has handed its output on.
type reaper struct {
	kick chan struct{} // something was launched
	wait chan struct{} // something is about to end

	mu        sync.Mutex
	waiting   map[int]chan exit // commands by pid
	launching int               // forks whose pid is not registered yet
	early     map[int]exit      // children that ended during a launch, by pid
	ends      uint64            // children that ended so far
}

type exit struct {
	status unix.WaitStatus
	usage  unix.Rusage
	number uint64 // among all ends
}

const (
	// childless is how often the reaper looks for children when it knows of none:
	// only processes that the host put beside it leave such orphans.
	childless = 30 * time.Second
	// shortCommand is how long the reaper does not wait for a command. It bounds
	// how late the end of one is seen whose output is still open.
	shortCommand = 10 * time.Millisecond
	// series is the same for commands that come one after the other.
	series = 100 * time.Millisecond
)

func newReaper() *reaper {
	r := &reaper{
		kick: make(chan struct{}, 1), wait: make(chan struct{}, 1),
		waiting: map[int]chan exit{}, early: map[int]exit{},
	}
	go r.run()
	return r
}

func (r *reaper) run() {
	for {
		select {
		case <-r.kick:
			r.rest()
		case <-r.wait:
		case <-time.After(childless):
		}
		for r.reap(0) {
		}
	}
}

// rest returns when nothing was launched for a while, or something ends, or
// commands have come one after the other for long.
func (r *reaper) rest() {
	quiet, long := time.NewTimer(shortCommand), time.NewTimer(series)
	defer quiet.Stop()
	defer long.Stop()
	for {
		select {
		case <-r.kick:
			quiet.Reset(shortCommand)
		case <-r.wait:
			return
		case <-quiet.C:
			return
		case <-long.C:
			return
		}
	}
}

// reap waits for a child, or only looks with WNOHANG, and reports whether
// there was one that ended.
func (r *reaper) reap(options int) bool {
	var e exit
	pid, err := unix.Wait4(-1, &e.status, unix.WALL|options, &e.usage)
	if err == nil && pid > 0 && (e.status.Exited() || e.status.Signaled()) {
		r.ended(pid, e)
	}
	return err == unix.EINTR || err == nil && pid > 0
}

// look is told that an output ended, most likely with its command.
func (r *reaper) look() {
	if r.reap(unix.WNOHANG) {
		return
	}
	wake(r.wait)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *reaper) ended(pid int, e exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.number = r.ends
	r.ends++
	if ch, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		ch <- e
	} else if r.launching > 0 {
		r.early[pid] = e
	}
}

// launch runs fork, which returns a new child, and gives the channel
// on which the child's end will come.
func (r *reaper) launch(fork func() (*child, error)) (*child, <-chan exit, error) {
	r.mu.Lock()
	r.launching++
	before := r.ends
	r.mu.Unlock()
	c, err := fork()
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan exit, 1)
	if err == nil {
		// With launches one over the other for long, an end can be that of an
		// orphan that had the pid before.
		if e, ok := r.early[c.pid]; ok && e.number >= before {
			delete(r.early, c.pid)
			ch <- e
		} else {
			r.waiting[c.pid] = ch
		}
	}
	if r.launching--; r.launching == 0 {
		clear(r.early)
	}
	wake(r.kick)
	return c, ch, err
}
