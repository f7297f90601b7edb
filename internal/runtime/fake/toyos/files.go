package toyos

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// Limits of Linux: NAME_MAX, PATH_MAX and the links that path_resolution(7)
// follows.
const (
	maxName  = 255
	maxPath  = 4096
	maxLinks = 40
)

// Permission bits as access(2) has them.
const (
	mayExec  = 1
	mayWrite = 2
	mayRead  = 4
)

// As runs f with the rights of user.
func (s *System) As(user string, f func(agent.FS) error) error {
	config, _ := s.settings()
	if user == "" {
		user = config.GetUser()
	}
	who, err := s.disk.users.lookup(user)
	if err != nil {
		return err
	}
	dir := config.GetWorkdir()
	if dir == "" {
		dir = who.home
	}
	return f(s.disk.as(who, dir))
}

func (d *disk) as(who cred, dir string) *view { return &view{d: d, who: who, dir: dir} }

// view is the disk with the rights of one user.
type view struct {
	d   *disk
	who cred
	dir string // where relative paths begin
	// readOnly: nobody may change anything.
	readOnly bool
	// tree is where all paths begin, and stay; nil: they are resolved as usual.
	tree *node
}

func (v *view) may(n *node, want uint32) error {
	if v.readOnly && want&mayWrite != 0 {
		return syscall.EROFS
	}
	if v.who.uid == 0 {
		return nil
	}
	bits := n.mode
	switch {
	case v.who.uid == n.owner.uid:
		bits >>= 6
	case v.who.gid == n.owner.gid:
		bits >>= 3
	}
	if bits&want != want {
		return syscall.EACCES
	}
	return nil
}

func (v *view) mayChange(at place) error { return v.may(at.dir, mayWrite|mayExec) }

// mayRemove also honours the sticky bit.
func (v *view) mayRemove(at place) error {
	if at.name == "" {
		return syscall.EBUSY
	}
	if err := v.mayChange(at); err != nil {
		return err
	}
	if at.dir.mode&syscall.S_ISVTX != 0 && v.who.uid != 0 && v.who.uid != at.node.owner.uid && v.who.uid != at.dir.owner.uid {
		return syscall.EPERM
	}
	return nil
}

// do runs f with the disk locked and dresses its error.
func (v *view) do(op, p string, f func() error) error {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if err := f(); err != nil {
		return &fs.PathError{Op: op, Path: p, Err: err}
	}
	return nil
}

func (v *view) Stat(p string, follow bool) (info *guestv1.FileInfo, err error) {
	v, in := v.at(p)
	err = v.do("stat", p, func() error {
		at, err := v.existing(in, follow)
		if err == nil {
			info = v.d.info(p, path.Base(p), at.node)
		}
		return err
	})
	return info, err
}

func (v *view) Names(p, after string, limit int) (names []string, more bool, err error) {
	all, err := v.names(p)
	if err != nil {
		return nil, false, err
	}
	first := agent.NewFirstNames(after, limit)
	first.Add(all)
	names, more = first.Sorted()
	return names, more, nil
}

// names lists a directory, sorted bytewise.
func (v *view) names(p string) (names []string, err error) {
	v, in := v.at(p)
	err = v.do("readdir", p, func() error {
		at, err := v.existing(in, true)
		switch {
		case err != nil:
			return err
		case !at.node.is(syscall.S_IFDIR):
			return syscall.ENOTDIR
		}
		if err := v.may(at.node, mayRead); err != nil {
			return err
		}
		names = slices.Sorted(maps.Keys(at.node.entries))
		return nil
	})
	return names, err
}

// Tree implements agent.FS.
func (v *view) Tree(p string, follow bool) (t agent.Tree, err error) {
	v, in := v.at(p)
	err = v.do("open", p, func() error {
		at, err := v.existing(in, follow)
		switch {
		case err != nil:
			return err
		case !at.node.is(syscall.S_IFDIR):
			return syscall.ENOTDIR
		}
		t = &tree{view{d: v.d, who: v.who, tree: at.node, readOnly: v.readOnly}}
		return nil
	})
	return t, err
}

// tree is the disk below one directory.
type tree struct{ view }

func (*tree) Close() error { return nil }

func (v *view) Readlink(p string) (target string, err error) {
	v, in := v.at(p)
	err = v.do("readlink", p, func() error {
		at, err := v.existing(in, false)
		if err == nil && !at.node.is(syscall.S_IFLNK) {
			err = syscall.EINVAL
		}
		if err == nil {
			target = at.node.target
		}
		return err
	})
	return target, err
}

func (v *view) Mkdir(p string, mode uint32) error {
	v, in := v.at(p)
	return v.do("mkdir", p, func() error {
		at, err := v.vacant(in)
		if err == nil {
			v.d.link(at.dir, at.name, v.d.newNode(syscall.S_IFDIR|mode&0o7777, v.who))
		}
		return err
	})
}

func (v *view) Symlink(target, p string) error {
	v, in := v.at(p)
	return v.do("symlink", p, func() error {
		at, err := v.vacant(in)
		if err == nil {
			n := v.d.newNode(syscall.S_IFLNK|0o777, v.who)
			n.target = target
			v.d.link(at.dir, at.name, n)
		}
		return err
	})
}

func (v *view) Link(old, p string) error {
	source, oldIn := v.at(old)
	v, in := v.at(p)
	if source.d != v.d {
		return &os.LinkError{Op: "link", Old: old, New: p, Err: syscall.EXDEV}
	}
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	from, err := v.existing(oldIn, false)
	var to place
	if err == nil {
		to, err = v.vacant(in)
	}
	if err == nil && from.node.is(syscall.S_IFDIR) {
		err = syscall.EPERM
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: old, New: p, Err: err}
	}
	from.node.links++
	v.d.link(to.dir, to.name, from.node)
	return nil
}

// owned resolves p to something that the user may change the attributes of.
func (v *view) owned(p string, follow bool) (place, error) {
	at, err := v.existing(p, follow)
	switch {
	case err != nil:
	case v.readOnly:
		err = syscall.EROFS
	case v.who.uid != 0 && v.who.uid != at.node.owner.uid:
		err = syscall.EPERM
	}
	return at, err
}

func (v *view) Chmod(p string, mode uint32) error {
	v, in := v.at(p)
	return v.do("chmod", p, func() error {
		at, err := v.owned(in, true)
		if err == nil {
			at.node.mode = at.node.mode&syscall.S_IFMT | mode&0o7777
			v.d.notify(at.dir, guestv1.WatchKind_WATCH_KIND_CHMOD, at.name, at.node)
		}
		return err
	})
}

func (v *view) Chown(p string, uid, gid int) error {
	v, in := v.at(p)
	return v.do("chown", p, func() error {
		at, err := v.existing(in, false)
		if err == nil && v.readOnly {
			err = syscall.EROFS
		}
		if err != nil {
			return err
		}
		return v.who.chown(at.node, uid, gid)
	})
}

// chown gives a node away; d.mu is held.
func (c cred) chown(n *node, uid, gid int) error {
	if c.uid != 0 {
		return syscall.EPERM
	}
	if uid >= 0 {
		n.owner.uid = uint32(uid)
	}
	if gid >= 0 {
		n.owner.gid = uint32(gid)
	}
	return nil
}

func (v *view) Owner(spec string) (uid, gid int, err error) { return v.d.users.owner(spec) }

func (v *view) Chtimes(p string, mtime time.Time) error {
	v, in := v.at(p)
	return v.do("chtimes", p, func() error {
		at, err := v.owned(in, false)
		if err == nil {
			at.node.mtime = mtime
		}
		return err
	})
}

func (v *view) Remove(p string) error {
	v, in := v.at(p)
	return v.do("remove", p, func() error {
		at, err := v.existing(in, false)
		if err != nil {
			return err
		}
		if err := v.mayRemove(at); err != nil {
			return err
		}
		if len(at.node.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		v.d.unlink(at.dir, at.name, at.node)
		v.d.notify(at.dir, guestv1.WatchKind_WATCH_KIND_REMOVE, at.name, at.node)
		v.d.notify(at.node, guestv1.WatchKind_WATCH_KIND_REMOVE, "", at.node)
		return nil
	})
}
