//go:build linux

package pid1

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Package syscall can start programs, too, but resets each of the runtime's
// signal handlers in each child and learns of a failure through a pipe: half of
// all system calls of a start. Here the kernel resets the handlers, and the child
// leaves word in the memory that it shares with its parent.

// program is what a child becomes.
type program struct {
	file      string
	argv, env []string
	dir       string
	files     [3]int // standard input, output and error; above 2, close-on-exec
	terminal  bool   // the first file is to be the controlling terminal
	id        identity
	openFiles uint64 // limit; 0: as this process
	cgroup    int    // directory of the control group to be born in; -1: this process's
}

// cloneArgs is the kernel's struct clone_args up to cgroup.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// step is one system call of a child before it executes its program.
type step struct {
	number uintptr
	args   [4]uintptr
}

// failure is the step of a child that failed.
type failure struct {
	step, errno uintptr
}

// vfork makes a child that makes the n system calls from first on, the last of
// which executes a program, and returns its pid, or a negated error number. It
// returns when the program runs, or the child has ended and left word in f. That
// can take long: to the runtime it is a system call that blocks.
//
//go:noescape
func vfork(clone *cloneArgs, size uintptr, first *step, n uintptr, f *failure) uintptr

// steps builds the calls of a child.
type steps struct {
	list []step
	keep []unsafe.Pointer // memory that the calls point to
	err  error            // the first text that holds a NUL
}

func (s *steps) add(number uintptr, args ...uintptr) {
	st := step{number: number}
	copy(st.args[:], args)
	s.list = append(s.list, st)
}

func (s *steps) text(t string) uintptr {
	p, err := syscall.BytePtrFromString(t)
	if err != nil {
		s.err = err
	}
	return s.address(unsafe.Pointer(p))
}

func (s *steps) texts(list []string) uintptr {
	p, err := syscall.SlicePtrFromStrings(list)
	if err != nil {
		s.err = err
		return 0
	}
	return s.address(unsafe.Pointer(&p[0]))
}

func (s *steps) address(p unsafe.Pointer) uintptr {
	s.keep = append(s.keep, p)
	return uintptr(p)
}

// spawnError is the system call that kept a program from running.
type spawnError struct {
	call  uintptr // number of the call
	errno syscall.Errno
}

func (e *spawnError) Error() string { return fmt.Sprintf("system call %d: %v", e.call, e.errno) }
func (e *spawnError) Unwrap() error { return e.errno }

// spawn runs p as a child of the calling thread, in a session of its own, and
// returns its pid. A child that failed is left to the reaper.
func spawn(p program) (int, error) { return p.steps().run(p.cgroup) }

func (s *steps) run(cgroup int) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	w := new(waker)
	clone := &cloneArgs{
		flags:     unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND | unix.CLONE_PARENT_SETTID,
		parentTID: uint64(uintptr(unsafe.Pointer(&w.pid))), exitSignal: uint64(unix.SIGCHLD),
	}
	if cgroup >= 0 {
		clone.flags |= unix.CLONE_INTO_CGROUP
		clone.cgroup = uint64(cgroup)
	}
	failed := new(failure)
	w.start()
	pid := vfork(clone, unsafe.Sizeof(*clone), &s.list[0], uintptr(len(s.list)), failed)
	w.stop()
	runtime.KeepAlive(s)
	const maxErrno = 4095
	switch {
	case pid > ^uintptr(maxErrno):
		return 0, &spawnError{unix.SYS_CLONE3, syscall.Errno(-pid)}
	case failed.errno != 0:
		return 0, &spawnError{s.list[failed.step].number, syscall.Errno(failed.errno)}
	}
	return int(pid), nil
}

// waker wakes a child that was stopped before its program ran: from the moment
// that it has its user's rights, other processes of that user can do it, and the
// thread that waits for it would wait for them.
type waker struct {
	pid   atomic.Int32 // the kernel sets it; 0: the wait is over
	timer *time.Timer
}

// wakeAfter is how often a child is woken. Most starts take a hundredth of it.
const wakeAfter = 100 * time.Millisecond

func (w *waker) start() {
	w.pid.Store(-1)
	w.timer = time.AfterFunc(wakeAfter, w.wake)
}

func (w *waker) wake() {
	pid := int(w.pid.Load())
	if pid == 0 {
		return
	}
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGCONT) // nothing to one that runs
	}
	time.AfterFunc(wakeAfter, w.wake)
}

func (w *waker) stop() {
	w.pid.Store(0)
	w.timer.Stop()
}

// steps are what the child does. Rights go late: the calls before may need them,
// and a child without them can be stopped by others of its user.
func (p *program) steps() *steps {
	s := &steps{list: make([]step, 0, 12)}
	s.add(unix.SYS_SETSID)
	if p.openFiles > 0 {
		lim := &unix.Rlimit{Cur: p.openFiles, Max: p.openFiles}
		s.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, s.address(unsafe.Pointer(lim)))
	}
	for i, fd := range p.files {
		s.add(unix.SYS_DUP3, uintptr(fd), uintptr(i))
	}
	if p.terminal {
		s.add(unix.SYS_IOCTL, 0, unix.TIOCSCTTY)
	}
	groups := uintptr(0)
	if len(p.id.groups) > 0 {
		groups = s.address(unsafe.Pointer(&p.id.groups[0]))
	}
	s.add(unix.SYS_SETGROUPS, uintptr(len(p.id.groups)), groups)
	s.add(unix.SYS_SETGID, uintptr(p.id.gid))
	s.add(unix.SYS_SETUID, uintptr(p.id.uid))
	s.add(unix.SYS_CHDIR, s.text(p.dir))
	s.add(unix.SYS_EXECVE, s.text(p.file), s.texts(p.argv), s.texts(p.env))
	return s
}
