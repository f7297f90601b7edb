//go:build linux

package pid1

import (
	"cmp"
	"os"
	"path"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
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

func (s *fileSystem) Stat(p string, follow bool) (*guestv1.FileInfo, error) {
	var st unix.Stat_t
	err := s.at(p, func(dir int, p string) error { return unix.Fstatat(dir, p, &st, s.statFlags(follow)) })
	if err != nil {
		return nil, s.pathError("stat", p, err)
	}
	i := s.users.info(&st)
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

func (u *users) info(st *unix.Stat_t) *guestv1.FileInfo {
	i := &guestv1.FileInfo{
		Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size, Nlink: uint32(st.Nlink), Ino: st.Ino, Dev: st.Dev,
		MtimeNs: st.Mtim.Nano(), AtimeNs: st.Atim.Nano(), CtimeNs: st.Ctim.Nano(),
	}
	i.User, i.Group = u.names(st.Uid, st.Gid)
	return i
}

func (s *fileSystem) Readlink(p string) (target string, err error) {
	b := make([]byte, unix.PathMax)
	err = s.at(p, func(dir int, p string) error {
		n, err := unix.Readlinkat(dir, p, b)
		if err == nil {
			target = string(b[:n])
		}
		return err
	})
	return target, s.pathError("readlink", p, err)
}

func (s *fileSystem) Mkdir(p string, mode uint32) error {
	return s.pathError("mkdir", p, s.at(p, func(dir int, p string) error { return unix.Mkdirat(dir, p, mode) }))
}

func (s *fileSystem) Symlink(target, p string) error {
	err := s.at(p, func(dir int, p string) error { return unix.Symlinkat(target, dir, p) })
	return s.linkError("symlink", target, p, err)
}

func (s *fileSystem) Link(old, p string) error {
	return s.linkError("link", old, p, s.atBoth(old, p, func(from int, old string, to int, p string) error {
		return unix.Linkat(from, old, to, p, 0)
	}))
}

func (s *fileSystem) Chmod(p string, mode uint32) error {
	return s.pathError("chmod", p, s.at(p, func(dir int, name string) error {
		if s.tree != nil {
			return chmodAt(dir, name, mode)
		}
		return unix.Fchmodat(dir, name, mode, 0)
	}))
}

func (s *fileSystem) Chown(p string, uid, gid int) error {
	return s.pathError("chown", p, s.at(p, func(dir int, p string) error {
		return unix.Fchownat(dir, p, uid, gid, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH)
	}))
}

func (s *fileSystem) Owner(spec string) (uid, gid int, err error) { return s.users.owner(spec) }

func (s *fileSystem) Chtimes(p string, mtime time.Time) error {
	return s.pathError("chtimes", p, s.at(p, func(dir int, p string) error {
		return unix.UtimesNanoAt(dir, p, atTime(mtime), unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH)
	}))
}

// atTime is a time as utimensat(2) takes it, for access and change.
func atTime(t time.Time) []unix.Timespec {
	spec := unix.NsecToTimespec(t.UnixNano())
	return []unix.Timespec{spec, spec}
}

func (s *fileSystem) Rename(from, to string, overwrite bool) error {
	return s.linkError("rename", from, to, s.atBoth(from, to, func(fromDir int, from string, toDir int, to string) error {
		if overwrite {
			return unix.Renameat(fromDir, from, toDir, to)
		}
		err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
		if err != unix.EINVAL {
			return err
		}
		// A file system that can't promise it.
		var st unix.Stat_t
		if unix.Fstatat(toDir, to, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
		return unix.Renameat(fromDir, from, toDir, to)
	}))
}

func (s *fileSystem) Remove(p string) error {
	return s.pathError("remove", p, s.at(p, func(dir int, p string) error {
		err := unix.Unlinkat(dir, p, 0)
		if err == nil {
			return nil
		}
		if dirErr := unix.Unlinkat(dir, p, unix.AT_REMOVEDIR); dirErr != unix.ENOTDIR {
			err = dirErr
		}
		return err
	}))
}
