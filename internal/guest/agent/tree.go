package agent

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

func (s *files) mkdir(_ context.Context, q *guestv1.MkdirRequest) (*guestv1.MkdirResponse, error) {
	p, mode := string(q.GetPath()), q.GetMode()&permsMask
	if q.GetMode() == 0 {
		mode = 0o755
	}
	return new(guestv1.MkdirResponse), s.as(q.GetUser(), func(fsys FS) error {
		owner, err := ownerOf(fsys, q.GetOwner())
		if err != nil {
			return err
		}
		if q.GetParents() {
			return mkdirAll(fsys, p, mode, owner)
		}
		if !owner.set {
			return fsys.Mkdir(p, mode)
		}
		return inTree(fsys, parent(p), func(t Tree) error { return mkdirFor(t, base(p), mode, owner) })
	}, p)
}

// owner is whom new files are given to; the zero value is the user who makes
// them.
type owner struct {
	set      bool
	uid, gid int
}

func ownerOf(fsys FS, spec string) (o owner, err error) {
	if spec == "" {
		return owner{}, nil
	}
	o.set = true
	o.uid, o.gid, err = fsys.Owner(spec)
	return o, err
}

func (o owner) give(fsys FS, p string) error {
	if !o.set {
		return nil
	}
	return fsys.Chown(p, o.uid, o.gid)
}

func (o owner) giveFile(f File) error {
	if !o.set {
		return nil
	}
	return f.Chown(o.uid, o.gid)
}

// mkdirAll makes a directory and its parents. What is there already must be a
// directory or a link to one, and keeps its owner.
func mkdirAll(fsys FS, p string, mode uint32, to owner) error {
	var missing []string
	for ; ; p = parent(p) {
		i, err := fsys.Stat(p, true)
		if err == nil && isDir(i) {
			break
		}
		if err == nil {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		if !errors.Is(err, fs.ErrNotExist) || p == parent(p) {
			return err
		}
		missing = append(missing, p)
	}
	if len(missing) == 0 {
		return nil
	}
	return inTree(fsys, p, func(t Tree) error {
		rel := "."
		for _, m := range slices.Backward(missing) {
			name := base(m)
			rel = path.Join(rel, name) // no link is among what was missing
			if name == "." || name == ".." {
				continue
			}
			if !filepath.IsLocal(rel) {
				return guest.Errorf(errdefs.ErrInvalidArgument, "mkdir %s: it leads out of a directory that is not there", strings.ToValidUTF8(m, "\uFFFD"))
			}
			if err := mkdirFor(t, rel, mode, to); err != nil && !(errors.Is(err, fs.ErrExist) && isDirAt(t, rel)) {
				return err
			}
		}
		return nil
	})
}

// isDirAt reports whether there is a directory, and not a link to one.
func isDirAt(t Tree, p string) bool {
	i, err := t.Stat(p, false)
	return err == nil && isDir(i)
}

// mkdirFor makes a directory and gives it away, below where nobody can put a link
// in its place between the two.
func mkdirFor(t Tree, p string, mode uint32, to owner) error {
	if err := t.Mkdir(p, mode); err != nil {
		return err
	}
	return to.give(t, p)
}

func (s *files) move(_ context.Context, q *guestv1.MoveRequest) (*guestv1.MoveResponse, error) {
	from, to := string(q.GetFrom()), string(q.GetTo())
	return new(guestv1.MoveResponse), s.as(q.GetUser(), func(fsys FS) error {
		return fsys.Rename(from, to, q.GetOverwrite())
	}, from, to)
}

func (s *files) remove(ctx context.Context, q *guestv1.RemoveRequest) (*guestv1.RemoveResponse, error) {
	p := string(q.GetPath())
	return new(guestv1.RemoveResponse), s.goThrough(ctx, q.GetUser(), func(fsys FS) error {
		if q.GetRecursive() {
			return removeAll(ctx, fsys, p)
		}
		return fsys.Remove(p)
	}, p)
}

// removeAll removes a tree without following links.
func removeAll(ctx context.Context, fsys FS, p string) error {
	name := base(p)
	switch name {
	case "":
		return guest.Errorf(errdefs.ErrInvalidArgument, "the root directory can't be removed")
	case ".", "..":
		return guest.Errorf(errdefs.ErrInvalidArgument, "remove %s: a path that ends in . or .. is not removed with what is below", p)
	}
	return inTree(fsys, parent(p), func(t Tree) error { return removeBelow(ctx, t, name) })
}

func removeBelow(ctx context.Context, t Tree, name string) error {
	i, err := t.Stat(name, false)
	if err != nil {
		return err
	}
	if !isDir(i) {
		return t.Remove(name)
	}
	gone := func(rel string) error {
		if err := t.Remove(join(name, rel)); !isGone(err) {
			return err
		}
		return nil
	}
	w := &walk{fsys: t, root: name}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		if isDir(i) {
			return true, nil
		}
		return false, gone(rel)
	}
	w.leave = func(rel string, _ *guestv1.FileInfo) error { return gone(rel) }
	if err := w.run(ctx, ""); err != nil {
		return err
	}
	return t.Remove(name)
}

func (s *files) chmod(ctx context.Context, q *guestv1.ChmodRequest) (*guestv1.ChmodResponse, error) {
	a, p, mode := new(guestv1.ChmodResponse), string(q.GetPath()), q.GetMode()
	if mode&^0o7777 != 0 {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "mode %o has more than permission bits", mode)
	}
	return a, s.change(ctx, q.GetUser(), p, q.GetRecursive(), &a.Changed, func(fsys FS, p string, i *guestv1.FileInfo) (bool, error) {
		if i != nil && isLink(i) {
			return false, nil
		}
		return true, fsys.Chmod(p, mode)
	})
}

func (s *files) chown(ctx context.Context, q *guestv1.ChownRequest) (*guestv1.ChownResponse, error) {
	a, p := new(guestv1.ChownResponse), string(q.GetPath())
	var to owner
	return a, s.change(ctx, q.GetUser(), p, q.GetRecursive(), &a.Changed, func(fsys FS, p string, _ *guestv1.FileInfo) (_ bool, err error) {
		if !to.set {
			if to.uid, to.gid, err = fsys.Owner(q.GetOwner()); err != nil {
				return false, err
			}
			to.set = true
		}
		return true, to.give(fsys, p)
	})
}

// change applies f to a path, and to what is below a directory if that is asked
// for. f says whether it changed something; i is nil for the path itself.
func (s *files) change(ctx context.Context, user, p string, recursive bool, changed *uint64,
	f func(fsys FS, p string, i *guestv1.FileInfo) (bool, error),
) error {
	return s.goThrough(ctx, user, func(fsys FS) error {
		one := func(fsys FS, p string, i *guestv1.FileInfo) error {
			did, err := f(fsys, p, i)
			if did && err == nil {
				*changed++
			}
			return err
		}
		if !recursive {
			return one(fsys, p, nil)
		}
		t, err := fsys.Tree(p, false)
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			return one(fsys, p, nil) // a file, or a link
		}
		if err != nil {
			return err
		}
		defer t.Close()
		if err := one(t, "", nil); err != nil {
			return err
		}
		w := &walk{fsys: t}
		w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
			if err := one(t, rel, i); !isGone(err) {
				return true, err
			}
			return false, nil
		}
		return w.run(ctx, "")
	}, p)
}

func (s *files) symlink(_ context.Context, q *guestv1.SymlinkRequest) (*guestv1.SymlinkResponse, error) {
	target, p := string(q.GetTarget()), string(q.GetPath())
	return new(guestv1.SymlinkResponse), s.as(q.GetUser(), func(fsys FS) error {
		err := fsys.Symlink(target, p)
		if !q.GetOverwrite() || !errors.Is(err, fs.ErrExist) {
			return err
		}
		temp := tempName(p)
		if err := fsys.Symlink(target, temp); err != nil {
			return err
		}
		if err := fsys.Rename(temp, p, true); err != nil {
			return errors.Join(err, fsys.Remove(temp))
		}
		return nil
	}, target, p)
}

func (s *files) readlink(_ context.Context, q *guestv1.ReadlinkRequest) (*guestv1.ReadlinkResponse, error) {
	a, p := new(guestv1.ReadlinkResponse), string(q.GetPath())
	return a, s.as(q.GetUser(), func(fsys FS) error {
		target, err := fsys.Readlink(p)
		a.Target = []byte(target)
		return err
	}, p)
}
