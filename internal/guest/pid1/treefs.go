//go:build linux

package pid1

import (
	"slices"
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

	// Calls come in the order of a walk, so the directories that lead to the last
	// one are kept open for the next: as many as that of a project has, and the
	// lowest of those of a deeper tree.
	parent string
	dirs   []openDir
}

// openDir is a directory on the way to tree.parent, of which its path is the first
// size bytes.
type openDir struct{ size, fd int }

// maxOpenDirs is how many directories of a tree are kept open.
const maxOpenDirs = 32

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
	return &treeSystem{fileSystem{users: s.users, tree: &tree{path: s.name(p), root: fd}}}, nil
}

// treeSystem is a fileSystem that begins at a directory.
type treeSystem struct{ fileSystem }

func (s *treeSystem) Close() error {
	s.tree.keep(0)
	return unix.Close(s.tree.root)
}

// keep closes all but the first n directories.
func (t *tree) keep(n int) {
	for _, d := range t.dirs[n:] {
		_ = unix.Close(d.fd)
	}
	t.dirs = t.dirs[:n]
}

// at calls f with the directory that p is in and its name there; the directory
// itself, which is "." or nothing, has none. f is called again when a signal broke it
// off.
func (t *tree) at(p string, f func(dir int, name string) error) error {
	if p == "." {
		p = ""
	}
	parent, name := "", p
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		parent, name = p[:i], p[i+1:]
	}
	if name == ".." || name == "." || name == "" && p != "" {
		return unix.EINVAL
	}
	dir, err := t.enter(parent)
	if err != nil {
		return err
	}
	return retry(func() error { return f(dir, name) })
}

// enter opens a directory below the tree's, from the lowest one on the way to it
// that is open.
func (t *tree) enter(p string) (int, error) {
	n := len(t.dirs)
	for ; n > 0; n-- {
		if size := t.dirs[n-1].size; strings.HasPrefix(p, t.parent[:size]) && (len(p) == size || p[size] == '/') {
			break
		}
	}
	t.keep(n)
	t.parent = p
	from, done := t.root, 0
	if n > 0 {
		from, done = t.dirs[n-1].fd, t.dirs[n-1].size
	}
	for done < len(p) {
		rest := strings.TrimLeft(p[done:], "/")
		step := nextStep(rest)
		fd, err := openBelow(from, step)
		if err != nil {
			return -1, err
		}
		if len(t.dirs) == maxOpenDirs {
			_ = unix.Close(t.dirs[0].fd)
			t.dirs = slices.Delete(t.dirs, 0, 1)
		}
		done = len(p) - len(rest) + len(step)
		t.dirs = append(t.dirs, openDir{done, fd})
		from = fd
	}
	return from, nil
}

// nextStep is the part of a path that one system call opens: one name, or, far
// from the end, as many as a path may have. What is on the way is not kept open
// then, so some names are left to be opened one by one: a walk comes back to them.
func nextStep(p string) string {
	far := strings.Count(p, "/") + 1 - maxOpenDirs/2
	i := strings.IndexByte(p, '/')
	switch {
	case i < 0:
		return p
	case far <= 1:
		return p[:i]
	}
	step := p[:min(len(p), unix.PathMax-1)]
	for strings.Count(step, "/") > far {
		step = step[:strings.LastIndexByte(step, '/')]
	}
	if i := strings.LastIndexByte(step, '/'); i > 0 {
		return step[:i]
	}
	return p[:i] // a name that is too long, which the kernel says
}

// openBelow opens a directory through no link.
func openBelow(dir int, p string) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	err = retry(func() error {
		fd, err = unix.Openat2(dir, p, &how)
		return err
	})
	return fd, err
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
