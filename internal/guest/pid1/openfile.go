//go:build linux

package pid1

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

func (s *fileSystem) Names(p, after string, limit int) ([]string, bool, error) {
	fd, err := s.open(p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, false, s.pathError("open", p, err)
	}
	d := os.NewFile(uintptr(fd), p)
	defer d.Close()
	first := agent.NewFirstNames(after, limit)
	for {
		names, err := d.Readdirnames(4096) // in pieces: a directory may be larger than memory
		first.Add(names)
		if len(names) == 0 {
			list, more := first.Sorted()
			if err != nil && err != io.EOF {
				return nil, false, err
			}
			return list, more, nil
		}
	}
}

func (s *fileSystem) Open(p string, known *guestv1.FileInfo) (agent.File, error) {
	if known.GetMode()&unix.S_IFMT == unix.S_IFREG {
		return s.regular(p, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	}
	if err := s.look(p, unix.O_RDONLY); err != nil {
		return nil, err
	}
	return s.regular(p, unix.O_RDONLY, 0)
}

func (s *fileSystem) Create(p string, mode uint32, how agent.CreateMode) (agent.File, error) {
	flags := unix.O_WRONLY | unix.O_CREAT
	switch how {
	case agent.Append:
		flags |= unix.O_APPEND
	case agent.Exclusive:
		flags |= unix.O_EXCL | unix.O_NOFOLLOW
	}
	if how != agent.Exclusive {
		if err := s.look(p, flags); err != nil {
			return nil, err
		}
	}
	f, err := s.regular(p, flags, mode)
	if err != nil || how != agent.Truncate {
		return f, err
	}
	// Not by O_TRUNC: first it must be known to be a regular file.
	if err := f.(*file).Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// look refuses what is no regular file before it is opened, so that who waits at
// a FIFO is not woken.
func (s *fileSystem) look(p string, flags int) error {
	var st unix.Stat_t
	err := s.at(p, func(dir int, p string) error { return unix.Fstatat(dir, p, &st, s.statFlags(true)) })
	switch {
	case err == nil:
		return mustBeRegular(s.name(p), st.Mode)
	case flags&unix.O_CREAT != 0:
		return nil // the open tells whether it can be made
	}
	return s.pathError("open", p, err)
}

// regular opens a file and refuses what is not a regular one: now nobody can
// exchange it any more.
func (s *fileSystem) regular(p string, flags int, mode uint32) (agent.File, error) {
	fd, err := s.open(p, flags, mode)
	if err != nil {
		return nil, s.pathError("open", p, err)
	}
	f := &file{fd, s.name(p), s.users}
	if flags&unix.O_EXCL != 0 {
		return f, nil // new, so it is one
	}
	i, err := f.Stat()
	if err == nil {
		err = mustBeRegular(f.name, i.GetMode())
	}
	if err == nil && i.GetSize() == 0 && ownProc(fd) {
		err = pathError("open", f.name, unix.EACCES)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func mustBeRegular(p string, mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return pathError("open", p, unix.EISDIR)
	}
	return guest.Errorf(errdefs.ErrInvalidArgument, "open %s: not a regular file", strings.ToValidUTF8(p, "\uFFFD"))
}

// ownProc reports whether a file is about this process itself in /proc: its
// memory and descriptors are nobody's business, and "self" would mean it.
func ownProc(fd int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlink(byDescriptor(fd), b)
	return err != nil || strings.HasPrefix(string(b[:n]), "/proc/"+strconv.Itoa(os.Getpid())+"/")
}

// file is an open regular file. It is used by one goroutine at a time. Not an
// os.File: that would ask the kernel two more things about each descriptor.
type file struct {
	fd    int
	name  string
	users *users
}

func (f *file) Read(p []byte) (n int, err error) {
	err = retry(func() error {
		n, err = unix.Read(f.fd, p)
		return err
	})
	switch {
	case err != nil:
		return 0, pathError("read", f.name, err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f *file) Write(p []byte) (written int, err error) {
	for written < len(p) {
		var n int
		err = retry(func() error {
			n, err = unix.Write(f.fd, p[written:])
			return err
		})
		if err != nil {
			return written, pathError("write", f.name, err)
		}
		written += n
	}
	return written, nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	n, err := unix.Seek(f.fd, offset, whence)
	return n, pathError("seek", f.name, err)
}

func (f *file) Truncate(size int64) error {
	return pathError("truncate", f.name, retry(func() error { return unix.Ftruncate(f.fd, size) }))
}

func (f *file) Chmod(mode uint32) error {
	return pathError("chmod", f.name, unix.Fchmod(f.fd, mode))
}

func (f *file) Chown(uid, gid int) error {
	return pathError("chown", f.name, unix.Fchown(f.fd, uid, gid))
}

func (f *file) Chtimes(mtime time.Time) error {
	return pathError("chtimes", f.name, unix.UtimesNanoAt(f.fd, "", atTime(mtime), unix.AT_EMPTY_PATH))
}

func (f *file) Stat() (*guestv1.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return nil, pathError("stat", f.name, err)
	}
	return f.users.info(&st), nil
}

// Close may be called again.
func (f *file) Close() error {
	fd := f.fd
	f.fd = -1
	if fd < 0 {
		return nil
	}
	return pathError("close", f.name, unix.Close(fd))
}
