package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prewarmer is the name under which gVisor starts a program ahead of the
// sandbox: prewarmer PROGRAM ARGV0 [ARG…]. Being that program ourselves saves
// one exec.
const prewarmer = "gvisor-sentry-prewarmer"

// Files that the back end donates to a sandbox process, named by the number
// that they would have in the guest (gVisor's --pass-fd=HOST:GUEST).
const (
	passChannel   = 3    // stream to the guest agent
	passFilestore = 1000 // file that holds the writable layer
	passArgs      = 1001 // more arguments for boot, one a line; read and closed
	passCgroup    = 1010 // and up: files to join cgroups by; written and closed

	passCgroupThreads = 1030 // and up: the same, to be written by each thread
	passEnd           = 1050
)

// Where donated files that stay open are moved to. Their numbers are part of a
// checkpoint, so they must not depend on what else was donated or in which
// order.
const (
	fdChannel   = 900
	fdFilestore = 901
)

// bootArgs prepares a sandbox process and returns its command line. Other
// command lines are returned as they are. It runs again when boot executes
// itself a second time (rootless), and then finds nothing left to do.
func bootArgs(args []string) ([]string, error) {
	if filepath.Base(args[0]) == prewarmer {
		if len(args) < 3 {
			return nil, fmt.Errorf("usage: %s PROGRAM ARGV0 [ARG…]", prewarmer)
		}
		args = args[2:]
	}
	if slices.Contains(args, "gofer") {
		return args, prepareGofer(args)
	}
	if !slices.Contains(args, "boot") {
		return args, nil
	}
	collectLater()
	if err := writeToPanicLog(args); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(args, isPassArgs) { // the first time
		if err := closeInherited(args); err != nil {
			return nil, err
		}
	}
	if err := keepCPUID(); err != nil {
		return nil, err
	}
	useCompiledFilters()
	allowInodeLimits()
	useSpareProcessor()

	var out []string
	var extra []byte
	for _, arg := range args {
		arg, err := keepFilestore(arg)
		if err != nil {
			return nil, err
		}
		v, ok := strings.CutPrefix(arg, "--pass-fd=")
		host, guest, ok2 := strings.Cut(v, ":")
		if !ok || !ok2 {
			out = append(out, arg)
			continue
		}
		fd, err := strconv.Atoi(host)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", arg, err)
		}
		n, err := strconv.Atoi(guest)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", arg, err)
		}
		switch {
		case n == passChannel:
			arg, err = moved("--pass-fd=%d:3", fd, fdChannel)
		case n == passFilestore:
			arg, err = moved(filestoreFlag+"%d", fd, fdFilestore)
		case n == passArgs:
			arg = ""
			extra, err = readAll(fd)
		case n >= passCgroup && n < passCgroupThreads:
			arg, err = "", joinCgroup(fd)
		case n >= passCgroupThreads && n < passEnd:
			arg, err = "", joinThreads(fd)
		}
		if err != nil {
			return nil, err
		}
		if arg != "" {
			out = append(out, arg)
		}
	}
	if len(extra) > 0 { // the first time; later the rights are gone
		if err := leaveCgroupNamespace(); err != nil {
			return nil, err
		}
	}
	// The sandbox's id is the last argument; flags go before it.
	return slices.Insert(out, len(out)-1, strings.Fields(string(extra))...), nil
}

// writeToPanicLog makes the donated panic log the standard error of this
// process, which was born with none that anybody reads. gVisor does so too, but
// not before it has read its flags.
func writeToPanicLog(args []string) error {
	for _, arg := range args {
		v, ok := strings.CutPrefix(arg, "--panic-log-fd=")
		if !ok {
			continue
		}
		fd, err := strconv.Atoi(v)
		if err == nil {
			err = unix.Dup3(fd, unix.Stderr, 0)
		}
		if err != nil {
			return fmt.Errorf("use %s: %w", arg, err)
		}
	}
	return nil
}

// collectLater keeps the garbage collector out of a start, which leaves little
// garbage and lost a fifth of its time to it. What is left is given back when
// the start is over, or when it is more than any start needs.
func collectLater() {
	const (
		start  = time.Second
		enough = 64 << 20 // bytes; a sandbox that is up has some 8 MB
	)
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(enough)
	time.AfterFunc(start, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		debug.FreeOSMemory()
	})
}

// isPassArgs reports whether arg donates more arguments, which boot gets once.
func isPassArgs(arg string) bool {
	return strings.HasPrefix(arg, "--pass-fd=") && strings.HasSuffix(arg, fmt.Sprintf(":%d", passArgs))
}

// moved moves fd to a fixed number and returns the flag that names it.
func moved(flag string, fd, to int) (string, error) {
	if fd != to {
		// Not close-on-exec: boot may execute itself a second time.
		got, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, to)
		if err != nil {
			return "", fmt.Errorf("move file descriptor %d to %d: %w", fd, to, err)
		}
		unix.Close(fd)
		if got != to {
			return "", fmt.Errorf("file descriptor %d is taken", to)
		}
	}
	return fmt.Sprintf(flag, to), nil
}

func readAll(fd int) ([]byte, error) {
	f := os.NewFile(uintptr(fd), "arguments")
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read donated arguments: %w", err)
	}
	return b, nil
}

// joinCgroup moves this process into the cgroup whose process list fd is. The
// kernel checks the rights of whoever opened it.
func joinCgroup(fd int) error {
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("0")); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	return nil
}

// joinThreads moves each thread of this process into the cgroup whose thread
// list fd is. The kernel moves a thread that moves itself without the lock that
// makes a process wait for the whole machine. Threads that start later are born
// where the thread is that starts them.
func joinThreads(fd int) error {
	defer unix.Close(fd)
	self := []byte("0")
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&self[0])), uintptr(len(self)))
	runtime.KeepAlive(self)
	if errno != 0 {
		return fmt.Errorf("join cgroup: %w", errno)
	}
	return nil
}

// leaveCgroupNamespace gives this process a view of control groups that begins
// at its own. gVisor's library makes all other namespaces.
func leaveCgroupNamespace() error {
	// A namespace belongs to a thread: one makes it, all enter it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("leave the host's cgroup namespace: %w", err)
	}
	ns, err := unix.Open("/proc/thread-self/ns/cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup namespace: %w", err)
	}
	defer unix.Close(ns)
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_SETNS, uintptr(ns), unix.CLONE_NEWCGROUP, 0); e != 0 {
		return fmt.Errorf("share the cgroup namespace: %w", e)
	}
	return nil
}
