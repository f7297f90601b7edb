//go:build linux

package pid1

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper owns every wait of the process: commands, and orphans that were
// handed to it as the first process. No other code may wait for a child.
type reaper struct {
	kick chan struct{}

	mu        sync.Mutex
	waiting   map[int]chan exit // commands by pid
	launching int               // forks whose pid is not registered yet
	early     map[int]exit      // children that ended during a launch
}

type exit struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// childless is how often the reaper looks for children when it knows of none:
// only processes that the host put beside it leave such orphans.
const childless = 30 * time.Second

func newReaper() *reaper {
	r := &reaper{kick: make(chan struct{}, 1), waiting: map[int]chan exit{}, early: map[int]exit{}}
	go r.run()
	return r
}

func (r *reaper) run() {
	for {
		var e exit
		pid, err := unix.Wait4(-1, &e.status, unix.WALL, &e.usage)
		switch {
		case err == unix.ECHILD:
			select {
			case <-r.kick:
			case <-time.After(childless):
			}
		case err == nil && (e.status.Exited() || e.status.Signaled()):
			r.ended(pid, e)
		}
	}
}

func (r *reaper) ended(pid int, e exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		ch <- e
	} else if r.launching > 0 {
		r.early[pid] = e
	}
}

// launch runs fork, which returns the pid of a new child, and gives the channel
// on which the child's end will come.
func (r *reaper) launch(fork func() (int, error)) (int, <-chan exit, error) {
	r.mu.Lock()
	r.launching++
	r.mu.Unlock()
	pid, err := fork()
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan exit, 1)
	if err == nil {
		if e, ok := r.early[pid]; ok {
			delete(r.early, pid)
			ch <- e
		} else {
			r.waiting[pid] = ch
		}
	}
	if r.launching--; r.launching == 0 {
		clear(r.early)
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return pid, ch, err
}
