package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tree is the part of the host that this package touches. Tests replace it by
// a small model of the kernel.
type tree interface {
	// Read returns a file's content, bounded.
	Read(name string) (string, error)
	// Open opens a file that is read again and again, each time from its beginning.
	Open(name string) (file, error)
	// Write writes value to an existing file by one system call.
	Write(name, value string) error
	Mkdir(name string) error
	Rmdir(name string) error
	// Subdirs returns the names of the directories in dir.
	Subdirs(dir string) ([]string, error)
	Exists(name string) bool
	// Made is when a directory was made or last gained or lost a child.
	Made(dir string) (time.Time, error)
	// Writable is nil when this process may write to the file name.
	Writable(name string) error
	// Owner is the uid that a directory belongs to.
	Owner(dir string) (int, error)
	// Delegated asks the user's systemd whether unit has Delegate=yes.
	Delegated(unit string) (bool, error)
	// Uid and Pid of this process.
	UID() int
	PID() int
}

// file is one that stays open.
type file interface {
	io.ReaderAt
	io.Closer
}

// maxRead bounds what is read of one file: the longest is cgroup.procs with
// 11 bytes per process.
const maxRead = 4 << 20

type osTree struct{}

// Read does not go through os.File, which takes twice as many system calls.
func (osTree) Read(name string) (string, error) {
	fd, err := openRetry(name, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var all []byte
	for b := make([]byte, 4<<10); len(all) < maxRead; {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return string(all), nil
		}
		all = append(all, b[:n]...)
	}
	return string(all), nil
}

// Open keeps the file from the runtime's poller, in which os.Open would put it: the kernel
// wakes that each time a counter in the file moves, as sandboxes can have it do all the time.
func (osTree) Open(name string) (file, error) {
	fd, err := openRetry(name, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Write does not go through os.File: the kernel takes one write as one order,
// and a thread that moves itself must not be parked in the poller.
func (osTree) Write(name, value string) error {
	fd, err := openRetry(name, unix.O_WRONLY|unix.O_CLOEXEC)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Write(fd, []byte(value))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return &fs.PathError{Op: fmt.Sprintf("write %q to", value), Path: name, Err: err}
	}
	return nil
}

func openRetry(name string, flags int) (int, error) {
	for {
		fd, err := unix.Open(name, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (osTree) Mkdir(name string) error { return os.Mkdir(name, 0o755) }

func (osTree) Rmdir(name string) error {
	if err := unix.Rmdir(name); err != nil {
		return &fs.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

func (osTree) Made(dir string) (time.Time, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

func (osTree) Subdirs(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	var names []string
	for _, e := range all {
		// systemd links cpu and cpuacct to the directory of both.
		if e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (osTree) Exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (osTree) Writable(name string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write to", Path: name, Err: err}
	}
	return nil
}

func (osTree) Owner(dir string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return int(st.Uid), nil
}

// Delegated runs systemctl: nothing in the file system tells. (systemd sets an
// attribute on delegated units, but only the system's manager does.)
func (osTree) Delegated(unit string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // a busy machine takes seconds
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "--user", "show", "--property=Delegate", "--value", "--", unit).Output()
	if err != nil {
		return false, fmt.Errorf("ask systemd about %s: %w", unit, err)
	}
	return strings.TrimSpace(string(out)) == "yes", nil
}

func (osTree) UID() int { return os.Geteuid() }
func (osTree) PID() int { return os.Getpid() }

// pidList parses pids separated by white space. Words that are no positive
// number are left out: 0 stands for a process of another pid namespace.
func pidList(s string) []int {
	var all []int
	for w := range strings.FieldsSeq(s) {
		if n, err := strconv.Atoi(w); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	return all
}
