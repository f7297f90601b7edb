package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// procID names one process for ever, though pids are used again.
type procID struct {
	Pid   int
	Start uint64 // clock ticks after the boot of the host, field 22 of /proc/PID/stat
	Boot  string // the host's boot id
}

var errNoProcess = errors.New("no such process")

// identify names the process that has pid now.
func identify(pid int) (procID, error) {
	start, err := startTime(pid)
	if err != nil {
		return procID{}, err
	}
	boot, err := bootID()
	if err != nil {
		return procID{}, err
	}
	return procID{Pid: pid, Start: start, Boot: boot}, nil
}

func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read start time of %d: %w", pid, errNoProcess)
	}
	// The second field is the program's name in parentheses and may hold both.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("read start time of %d: short line", pid)
	}
	n, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read start time of %d: %w", pid, err)
	}
	return n, nil
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// process is a process that we hold, so that its pid means it and nothing else.
type process struct {
	id procID
	fd *os.File // pidfd
}

// hold returns the process id if it is alive. The pidfd pins the pid first, the
// start time tells afterwards whose it is.
func hold(id procID) (*process, error) {
	if id.Pid <= 0 {
		return nil, errNoProcess
	}
	// Non-blocking, so that waiting for it takes no thread.
	fd, err := unix.PidfdOpen(id.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", id.Pid, errNoProcess)
	}
	p := &process{id: id, fd: os.NewFile(uintptr(fd), "pidfd")}
	if now, err := identify(id.Pid); err != nil || now != id || p.ended() {
		p.fd.Close()
		return nil, fmt.Errorf("hold process %d: %w", id.Pid, errNoProcess)
	}
	return p, nil
}

// ended reports whether the process is dead; an unreaped one is.
func (p *process) ended() bool {
	dead := true
	if rc, err := p.fd.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { dead = readable(fd) }) // closed: dead for us
	}
	return dead
}

func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// wait returns nil when the process is dead, or an error when interrupt was
// called.
func (p *process) wait() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(readable)
}

// interrupt ends wait, whether it was called already or not.
func (p *process) interrupt() {
	_ = p.fd.SetReadDeadline(time.Unix(1, 0)) // fails for a closed handle, on which nobody waits
}

// killPatience is how long a killed process may take to be gone. Its memory
// must be freed, which takes a while when the host swaps.
const killPatience = 30 * time.Second

// kill ends the process and waits for that.
func (p *process) kill() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return fmt.Errorf("kill process %d: %w", p.id.Pid, err)
	}
	var sent error
	if err := rc.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return fmt.Errorf("kill process %d: %w", p.id.Pid, err)
	}
	if sent != nil && !errors.Is(sent, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.id.Pid, sent)
	}
	if err := p.fd.SetReadDeadline(time.Now().Add(killPatience)); err != nil {
		return fmt.Errorf("kill process %d: %w", p.id.Pid, err)
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", p.id.Pid, err)
	}
	return nil
}

func (p *process) close() { p.fd.Close() }

// findSandboxProcesses returns the sandbox processes and gofers that carry our root and
// the given name on their command line: those of which no record tells.
func findSandboxProcesses(root, engineID string) []procID {
	var found []procID
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !isSandbox(b, root, engineID) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		if id, err := identify(pid); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// isSandbox reports whether a command line (arguments end in NUL) is that of a
// sandbox process or of its gofer: … --root=ROOT … boot … ID.
func isSandbox(cmdline []byte, root, engineID string) bool {
	args := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	return args[len(args)-1] == engineID && (slices.Contains(args, "boot") || slices.Contains(args, "gofer")) && slices.Contains(args, "--root="+root)
}
