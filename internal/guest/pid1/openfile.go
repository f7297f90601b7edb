//go:build linux

package pid1

import (
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

func (s *fileSystem) Names(p, after string, limit int) ([]string, bool, error) {
	fd, err := s.open(p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, false, pathError("open", p, err)
	}
	d := os.NewFile(uintptr(fd), p)
	defer d.Close()
	first := agent.NewFirstNames(after, limit)
	for {
		names, err := d.Readdirnames(4096) // in pieces: a directory may be larger than memory
		first.Add(names)
		if len(names) == 0 {
			list, more := first.Sorted()
			if err != nil && err.Error() != "EOF" {
				return nil, false, err
			}
			return list, more, nil
		}
	}
}

func (s *fileSystem) Open(p string) (agent.File, error) {
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

// regular opens a file and refuses what is not a regular one. It looks before
// it opens, so that who waits at a FIFO is not woken, and again afterwards, when
// nobody can exchange the file any more.
func (s *fileSystem) regular(p string, flags int, mode uint32) (agent.File, error) {
	if flags&unix.O_EXCL == 0 {
		var st unix.Stat_t
		err := s.at(p, func(dir int, p string) error { return unix.Fstatat(dir, p, &st, 0) })
		if err == nil {
			err = mustBeRegular(p, st.Mode)
		} else if flags&unix.O_CREAT != 0 {
			err = nil // the open tells whether it can be made
		} else {
			err = pathError("open", p, err)
		}
		if err != nil {
			return nil, err
		}
	}
	fd, err := s.open(p, flags, mode)
	if err != nil {
		return nil, pathError("open", p, err)
	}
	f := &file{os.NewFile(uintptr(fd), p), s}
	if flags&unix.O_EXCL != 0 {
		return f, nil // new, so it is one
	}
	i, err := f.Stat()
	if err == nil {
		err = mustBeRegular(p, i.GetMode())
	}
	if err == nil && i.GetSize() == 0 && ownProc(fd) {
		err = pathError("open", p, unix.EACCES)
	}
	if err != nil {
		f.Close()
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
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), b)
	return err != nil || strings.HasPrefix(string(b[:n]), "/proc/"+strconv.Itoa(os.Getpid())+"/")
}

// file is an open regular file.
type file struct {
	*os.File
	s *fileSystem
}

func (f *file) Stat() (*guestv1.FileInfo, error) {
	var st unix.Stat_t
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var stat error
	if err := raw.Control(func(fd uintptr) { stat = unix.Fstat(int(fd), &st) }); err != nil {
		return nil, err
	}
	if stat != nil {
		return nil, pathError("stat", f.Name(), stat)
	}
	return f.s.info(&st), nil
}
