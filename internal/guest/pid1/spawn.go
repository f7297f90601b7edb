//go:build linux

package pid1

import (
	"fmt"
	"syscall"
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
	flags      uint64
	_          [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal uint64
	_          [5]uint64 // stack, stack_size, tls, set_tid, set_tid_size
	cgroup     uint64
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

// clone makes a child that makes the n system calls from first on, the last of
// which executes a program, and returns its pid, or a negated error number. The
// child leaves word in f when a call fails. It shares this memory until then, so
// all of it has to stay where it is.
func clone(args *cloneArgs, size uintptr, first *step, n uintptr, f *failure) uintptr

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

// child is a child of this process. It is to be kept until the child has ended.
type child struct {
	pid    int
	steps  *steps
	failed *failure
}

// spawn makes a child of the calling thread, in a session of its own, that
// becomes p. It does not wait for that: from the moment that a child has its
// user's rights, other processes of that user can stop it for ever.
func spawn(p program) (*child, error) { return p.steps().run(p.cgroup) }

func (s *steps) run(cgroup int) (*child, error) {
	if s.err != nil {
		return nil, s.err
	}
	args := &cloneArgs{flags: unix.CLONE_VM | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD)}
	if cgroup >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(cgroup)
	}
	c := &child{steps: s, failed: new(failure)}
	pid := clone(args, unsafe.Sizeof(*args), &s.list[0], uintptr(len(s.list)), c.failed)
	const maxErrno = 4095
	if pid > ^uintptr(maxErrno) {
		return nil, &spawnError{unix.SYS_CLONE3, syscall.Errno(-pid)}
	}
	c.pid = int(pid)
	return c, nil
}

// failure is why the program of a child that has ended never ran; nil if it did.
func (c *child) failure() error {
	if c.failed.errno == 0 {
		return nil
	}
	return &spawnError{c.steps.list[c.failed.step].number, syscall.Errno(c.failed.errno)}
}

// steps are what the child does. Rights go late: the calls before may need them.
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
