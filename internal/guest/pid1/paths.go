//go:build linux

package pid1

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystem acts with the rights of its thread.
type fileSystem struct {
	users *users
	dir   string // where relative paths begin
	tree  *tree  // where all paths begin, and stay; nil: they are resolved as usual
}

// at calls f with p as a system call takes it: relative to a directory. A path
// that is longer than the kernel allows (trees may be deeper than that) is gone
// in steps. f is called again when a signal broke it off.
func (s *fileSystem) at(p string, f func(dir int, p string) error) error {
	if s.tree != nil {
		return s.tree.at(p, f)
	}
	if !path.IsAbs(p) {
		p = s.dir + "/" + p // not Join: it would resolve ".." before links
	}
	dir := unix.AT_FDCWD
	for len(p) >= unix.PathMax {
		i := strings.LastIndexByte(p[:unix.PathMax-1], '/')
		if i <= 0 {
			return unix.ENAMETOOLONG
		}
		next, err := openAt(dir, p[:i], unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(next)
		dir, p = next, strings.TrimLeft(p[i:], "/")
		if p == "" {
			p = "."
		}
	}
	return retry(func() error { return f(dir, p) })
}

// atBoth is at for calls that take two paths.
func (s *fileSystem) atBoth(p, q string, f func(pDir int, p string, qDir int, q string) error) error {
	if s.tree != nil {
		return s.tree.both(p, q, f)
	}
	return s.at(p, func(pDir int, p string) error {
		return s.at(q, func(qDir int, q string) error { return f(pDir, p, qDir, q) })
	})
}

// openAt never waits for the other end of a FIFO, and never makes a terminal
// ours.
func openAt(dir int, p string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, p, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// open opens a path; see openAt.
func (s *fileSystem) open(p string, flags int, mode uint32) (fd int, err error) {
	err = s.at(p, func(dir int, name string) error {
		switch {
		case s.tree == nil:
		case name == "":
			dir, name, flags = unix.AT_FDCWD, byDescriptor(dir), flags&^unix.O_NOFOLLOW
		default:
			flags |= unix.O_NOFOLLOW
		}
		fd, err = openAt(dir, name, flags, mode)
		return err
	})
	return fd, err
}

// statFlags are those of a look at a file; in a tree no link is followed.
func (s *fileSystem) statFlags(follow bool) int {
	if follow && s.tree == nil {
		return unix.AT_EMPTY_PATH
	}
	return unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW
}

// name is a path as errors have it.
func (s *fileSystem) name(p string) string {
	switch {
	case s.tree == nil:
		return p
	case p == "":
		return s.tree.path
	}
	return strings.TrimSuffix(s.tree.path, "/") + "/" + p
}

func (s *fileSystem) pathError(op, p string, err error) error {
	if err == nil {
		return nil
	}
	return pathError(op, s.name(p), err)
}

func (s *fileSystem) linkError(op, from, to string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: s.name(from), New: s.name(to), Err: err}
}

func pathError(op, p string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: p, Err: err}
}

// retry repeats a call that a signal broke off.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
