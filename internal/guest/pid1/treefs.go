//go:build linux

package pid1

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/agent"
)

// tree keeps the paths of a fileSystem below one directory: they begin at its
// descriptor and lead through no link. So it is the same tree for as long as it
// is open, whatever takes the place of the directories on the way.
type tree struct {
	path string // as it was opened, for errors
	root int

	// Calls come in the order of a walk, so the directory that the last one was
	// about is kept open for the next.
	parent string
	dir    int
}

// Tree implements agent.FS.
func (s *fileSystem) Tree(p string, follow bool) (agent.Tree, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := s.open(p, flags, 0)
	if err != nil {
		return nil, s.pathError("open", p, err)
	}
	return &treeSystem{fileSystem{users: s.users, tree: &tree{path: s.name(p), root: fd, dir: fd}}}, nil
}

// treeSystem is a fileSystem that begins at a directory.
type treeSystem struct{ fileSystem }

func (s *treeSystem) Close() error {
	s.tree.leave()
	return unix.Close(s.tree.root)
}

func (t *tree) leave() {
	if t.dir != t.root {
		_ = unix.Close(t.dir)
	}
	t.parent, t.dir = "", t.root
}

// at calls f with the directory that p is in and its name there; the directory
// itself has none. f is called again when a signal broke it off.
func (t *tree) at(p string, f func(dir int, name string) error) error {
	parent, name := "", p
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		parent, name = p[:i], p[i+1:]
	}
	if name == ".." || name == "." || name == "" && p != "" {
		return unix.EINVAL
	}
	if parent != t.parent {
		t.leave()
	}
	if parent != t.parent {
		dir, err := t.open(parent)
		if err != nil {
			return err
		}
		t.parent, t.dir = parent, dir
	}
	return retry(func() error { return f(t.dir, name) })
}

// open opens a directory below the tree's. A path that is longer than the kernel
// allows is gone in steps.
func (t *tree) open(p string) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd = t.root
	for rest := p; rest != ""; {
		step := rest
		if len(step) >= unix.PathMax {
			if step = step[:strings.LastIndexByte(step[:unix.PathMax], '/')+1]; step == "" {
				step = rest // a name that is too long, which the kernel says
			}
		}
		rest = rest[len(step):]
		from := fd
		err = retry(func() error {
			fd, err = unix.Openat2(from, step, &how)
			return err
		})
		if from != t.root {
			_ = unix.Close(from)
		}
		if err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// both is at for calls that take two paths: the second must not close what the
// first needs.
func (t *tree) both(p, q string, f func(pDir int, p string, qDir int, q string) error) error {
	return t.at(p, func(dir int, p string) error {
		pDir, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(pDir)
		return t.at(q, func(qDir int, q string) error { return f(pDir, p, qDir, q) })
	})
}

// byDescriptor is a path that leads to an open file whatever its names are now;
// also for calls that take no descriptor, or none of O_PATH.
func byDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// chmodAt does not follow a link at the end, for which there is no system call
// that gVisor has.
func chmodAt(dir int, name string, mode uint32) error {
	if name != "" {
		fd, err := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		dir = fd
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod(byDescriptor(dir), mode)
}
