package transfer

import (
	"archive/tar"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// link is a symbolic link that is made when everything else is there: no entry
// is written through it, and only then it is known where it leads.
type link struct{ name, target string }

const (
	leadsOut = "a link that leads out of the directory"
	// What stands before such a .. may become a link later, by another copy.
	mayLeadOut = "a link that leads out of the directory or may come to do so: .. stands behind a name"
)

func (u *unpacker) link(h *tar.Header, name string) {
	if path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) {
		u.skips.Add(h.Name, leadsOut)
		return
	}
	if backAfterName(h.Linkname) {
		u.skips.Add(h.Name, mayLeadOut)
		return
	}
	if u.linkBytes += len(name) + len(h.Linkname); u.linkBytes > maxLinkBytes {
		u.skips.Add(h.Name, "there are too many links")
		return
	}
	u.links = append(u.links, link{name, h.Linkname})
}

// backAfterName tells whether .. comes after a name: where that leads depends on
// what the name is.
func backAfterName(target string) bool {
	named := false
	for e := range strings.SplitSeq(target, "/") {
		switch e {
		case "..":
			if named {
				return true
			}
		case "", ".":
		default:
			named = true
		}
	}
	return false
}

// makeLinks makes the links and takes those back that together lead out, such as
// one through another.
func (u *unpacker) makeLinks() {
	var made []link
	for _, l := range u.links {
		if err := u.makeLink(l); err != nil {
			u.skips.Add(l.name, Reason(err))
			continue
		}
		made = append(made, l)
	}
	for _, l := range made {
		// A root does not go where it would be left.
		if _, err := u.root.Stat(l.name); err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		why := leadsOut
		if err := u.root.Remove(l.name); err != nil {
			why = Reason(err)
		}
		u.skips.Add(l.name, why)
	}
}

func (u *unpacker) makeLink(l link) error {
	dir := path.Dir(l.name)
	if err := u.mkdirs(dir); err != nil {
		return err
	}
	if err := u.checkDir(dir); err != nil {
		return err
	}
	// It replaces a file as a file does, never a directory.
	if i, err := u.root.Lstat(l.name); err == nil && i.IsDir() {
		return &fs.PathError{Op: "symlink", Path: l.name, Err: syscall.EEXIST}
	}
	if err := u.remove(l.name); err != nil {
		return err
	}
	return u.root.Symlink(l.target, l.name)
}

// checkDir fails if a link is on the way to a directory: where a link in it leads
// was judged by its name.
func (u *unpacker) checkDir(dir string) error {
	if dir == "." || dir == u.checked {
		return nil
	}
	if err := u.checkDir(path.Dir(dir)); err != nil {
		return err
	}
	i, err := u.root.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !i.IsDir():
		return &fs.PathError{Op: "symlink", Path: dir, Err: syscall.ELOOP}
	}
	u.checked = dir // no link takes the place of a directory
	return nil
}
