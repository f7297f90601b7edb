//go:build linux

package pid1

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

// files is the sandbox's file system.
type files struct {
	users  *users
	config func() *guestv1.GuestConfig
}

// As runs f on a thread that has the user's rights for as long.
func (s *files) As(user string, f func(agent.FS) error) error {
	c := s.config()
	id, err := s.users.lookup(cmp.Or(user, c.GetUser(), defaultUser))
	if err != nil {
		return err
	}
	fsys := &fileSystem{users: s.users, dir: below("/", c.GetWorkdir())}
	if id.uid == uint32(os.Getuid()) {
		return f(fsys)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := setIDs(id.uid, id.gid, id.groups)
		if err == nil {
			err = f(fsys)
		}
		if setIDs(0, 0, nil) == nil {
			runtime.UnlockOSThread() // else the thread ends with this goroutine
		}
		done <- err
	}()
	return <-done
}

// fileSystem acts with the rights of its thread.
type fileSystem struct {
	users *users
	dir   string // where relative paths begin
}

func (s *fileSystem) at(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return s.dir + "/" + p // not Join: it would resolve ".." before links
}

func pathError(op, p string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: p, Err: err}
}

func linkError(op, from, to string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: from, New: to, Err: err}
}

// retry repeats a call that a signal broke off.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *fileSystem) Stat(p string, follow bool) (*guestv1.FileInfo, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(unix.AT_FDCWD, s.at(p), &st, flags) }); err != nil {
		return nil, pathError("stat", p, err)
	}
	i := s.info(&st)
	i.Path, i.Name = []byte(p), []byte(path.Base(p))
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := s.Readlink(p)
		if err != nil {
			return nil, err
		}
		i.Target = []byte(target)
	}
	return i, nil
}

func (s *fileSystem) info(st *unix.Stat_t) *guestv1.FileInfo {
	i := &guestv1.FileInfo{
		Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size, Nlink: uint32(st.Nlink), Ino: st.Ino,
		MtimeNs: st.Mtim.Nano(), AtimeNs: st.Atim.Nano(), CtimeNs: st.Ctim.Nano(),
	}
	i.User, i.Group = s.users.names(st.Uid, st.Gid)
	return i
}

func (s *fileSystem) Names(p string) ([]string, error) {
	fd, err := open(s.at(p), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, pathError("open", p, err)
	}
	d := os.NewFile(uintptr(fd), p)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (s *fileSystem) Readlink(p string) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlink(s.at(p), b)
	if err != nil {
		return "", pathError("readlink", p, err)
	}
	return string(b[:n]), nil
}

// open never waits for the other end of a FIFO, and never makes a terminal ours.
func open(p string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(p, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
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

// regular opens a file and refuses what is not a regular one.
func (s *fileSystem) regular(p string, flags int, mode uint32) (agent.File, error) {
	fd, err := open(s.at(p), flags, mode)
	if err != nil {
		return nil, pathError("open", p, err)
	}
	f := &file{os.NewFile(uintptr(fd), p), s}
	i, err := f.Stat()
	switch {
	case err != nil:
	case i.GetMode()&unix.S_IFMT == unix.S_IFDIR:
		err = pathError("open", p, unix.EISDIR)
	case i.GetSize() == 0 && ownProc(fd):
		err = pathError("open", p, unix.EACCES)
	case i.GetMode()&unix.S_IFMT != unix.S_IFREG:
		err = guest.Errorf(errdefs.ErrInvalidArgument, "open %s: not a regular file", strings.ToValidUTF8(p, "\uFFFD"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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

func (s *fileSystem) Mkdir(p string, mode uint32) error {
	return pathError("mkdir", p, unix.Mkdir(s.at(p), mode))
}

func (s *fileSystem) Symlink(target, p string) error {
	return linkError("symlink", target, p, unix.Symlink(target, s.at(p)))
}

func (s *fileSystem) Link(old, p string) error {
	return linkError("link", old, p, unix.Link(s.at(old), s.at(p)))
}

func (s *fileSystem) Chmod(p string, mode uint32) error {
	return pathError("chmod", p, unix.Chmod(s.at(p), mode))
}

func (s *fileSystem) Chtimes(p string, mtime time.Time) error {
	t := unix.NsecToTimespec(mtime.UnixNano())
	return pathError("chtimes", p, unix.UtimesNanoAt(unix.AT_FDCWD, s.at(p), []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW))
}

func (s *fileSystem) Rename(from, to string, overwrite bool) error {
	var flags uint
	if !overwrite {
		flags = unix.RENAME_NOREPLACE
	}
	err := unix.Renameat2(unix.AT_FDCWD, s.at(from), unix.AT_FDCWD, s.at(to), flags)
	if !overwrite && err == unix.EINVAL { // a file system that can't promise it
		var st unix.Stat_t
		if unix.Lstat(s.at(to), &st) == nil {
			err = unix.EEXIST
		} else {
			err = unix.Rename(s.at(from), s.at(to))
		}
	}
	return linkError("rename", from, to, err)
}

func (s *fileSystem) Remove(p string) error {
	err := unix.Unlink(s.at(p))
	if err == nil {
		return nil
	}
	if dirErr := unix.Rmdir(s.at(p)); dirErr != unix.ENOTDIR {
		err = dirErr
	}
	return pathError("remove", p, err)
}
