package toyos

import (
	"os"
	"syscall"

	guestv1 "agentbox/internal/gen/guest/v1"
)

func (v *view) Rename(from, to string, overwrite bool) error {
	source, fromIn := v.at(from)
	v, toIn := v.at(to)
	if source.d != v.d {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EXDEV}
	}
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if err := v.rename(fromIn, toIn, overwrite); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func (v *view) rename(from, to string, overwrite bool) error {
	src, err := v.existing(from, false)
	if err != nil {
		return err
	}
	dst, err := v.find(to, false)
	if err != nil {
		return err
	}
	if err := v.mayRemove(src); err != nil {
		return err
	}
	if dst.name == "" {
		return syscall.EBUSY
	}
	if err := v.mayChange(dst); err != nil {
		return err
	}
	for n := dst.dir; n != v.d.root; n = n.parent {
		if n == src.node {
			return syscall.EINVAL
		}
	}
	if dst.node == src.node {
		return nil
	}
	if dst.node != nil {
		if err := v.mayReplace(src, dst, overwrite); err != nil {
			return err
		}
		v.d.unlink(dst.dir, dst.name, dst.node)
	}
	delete(src.dir.entries, src.name)
	src.dir.touch()
	v.d.notify(src.dir, guestv1.WatchKind_WATCH_KIND_RENAME, src.name, src.node)
	v.d.notify(src.node, guestv1.WatchKind_WATCH_KIND_RENAME, "", src.node)
	if src.node.is(syscall.S_IFDIR) {
		src.dir.links--
	}
	v.d.link(dst.dir, dst.name, src.node)
	return nil
}

func (v *view) mayReplace(src, dst place, overwrite bool) error {
	srcDir, dstDir := src.node.is(syscall.S_IFDIR), dst.node.is(syscall.S_IFDIR)
	switch {
	case !overwrite:
		return syscall.EEXIST
	case dstDir && !srcDir:
		return syscall.EISDIR
	case srcDir && !dstDir:
		return syscall.ENOTDIR
	case len(dst.node.entries) > 0:
		return syscall.ENOTEMPTY
	}
	return v.mayRemove(dst)
}
