package erofs

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// inode is one file system object in memory.
type inode struct {
	mode     uint16
	inline   bool // its body lies behind the inode
	uid, gid uint32
	nlink    uint32
	mtimeNs  uint32
	addr     uint32 // first data block, or the device number
	ino      uint32 // number for 32-bit programs, 1…
	depth    int32  // directories: distance from the root
	mtime    int64
	size     int64
	nid      uint64 // place in the metadata area, in units of 32 bytes
	target   string // symbolic links
	parent   *inode // directories
	children map[string]child
	names    []string // directories, while Close runs: sorted, with . and ..
}

// child is a directory entry. layer tells which layer put the name there, so
// that a whiteout hides lower layers only, wherever it stands in its own.
type child struct {
	*inode
	layer int
}

func (i *inode) isDir() bool     { return i.mode&TypeMask == TypeDir }
func (i *inode) isSymlink() bool { return i.mode&TypeMask == TypeSymlink }

// hasBody reports whether the inode's data is made from the tree.
func (i *inode) hasBody() bool { return i.isDir() || i.isSymlink() }

func newDir() *inode {
	return &inode{mode: TypeDir | 0o755, children: map[string]child{}}
}

// setTime sets the time of modification; the zero time is 1970.
func (i *inode) setTime(t time.Time) {
	if !t.IsZero() {
		i.mtime, i.mtimeNs = t.Unix(), uint32(t.Nanosecond())
	}
}

// maxHops is how many symbolic links one path may lead through, as in Linux.
const maxHops = 40

// walk returns the directory that p names, inside the image: symbolic links
// are followed, ".." stops at the root. mk makes missing directories. Without
// it, a path that leads nowhere is NotFound.
func (w *Writer) walk(p string, mk func() *inode) (*inode, error) {
	d, hops := w.root, 0
	todo := []string{p} // paths still to go, the innermost link's last
	for len(todo) > 0 {
		name, rest, more := strings.Cut(todo[len(todo)-1], "/")
		todo = todo[:len(todo)-1]
		if more {
			todo = append(todo, rest)
		}
		if err := w.budget.step(); err != nil {
			return nil, err
		}
		switch name {
		case "", ".":
			continue
		case "..":
			d = d.parent
			continue
		}
		c, ok := d.children[name]
		switch {
		case !ok && mk == nil:
			return nil, fmt.Errorf("image entry %s: %w", quote(p), errdefs.ErrNotFound)
		case !ok:
			n := mk()
			if err := w.insert(d, name, n); err != nil {
				return nil, err
			}
			d = n
		case c.isDir():
			d = c.inode
		case c.isSymlink():
			if hops++; hops > maxHops {
				return nil, invalid(p, "too many symbolic links")
			}
			if c.target[0] == '/' {
				d = w.root
			}
			todo = append(todo, c.target)
		case mk == nil:
			return nil, fmt.Errorf("image entry %s: %w", quote(p), errdefs.ErrNotFound)
		default:
			return nil, invalid(p, "a parent is no directory")
		}
	}
	return d, nil
}

// at splits p into its directory and its last name, "" for the root. ".." in p
// is taken out of the text before any link is followed.
func (w *Writer) at(p string, mk func() *inode) (*inode, string, error) {
	dir, name := path.Split(path.Clean("/" + p))
	d, err := w.walk(dir, mk)
	return d, name, err
}

// insert lets d/name be n, in the current layer.
func (w *Writer) insert(d *inode, name string, n *inode) error {
	switch {
	case len(name) > maxName:
		return invalid(name, "name is longer than 255 bytes")
	case name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0:
		return invalid(name, "bad name")
	}
	if err := w.budget.name(len(name) + len(n.target)); err != nil {
		return err
	}
	if n.isDir() {
		n.parent, n.depth = d, d.depth+1
		if int(n.depth) > w.budget.limits.MaxDepth {
			return fmt.Errorf("image has more than %d nested directories: %w", w.budget.limits.MaxDepth, errdefs.ErrResourceExhausted)
		}
	}
	n.nlink++ // first: what is dropped may hold the other name of n
	w.drop(d, name)
	d.children[name] = child{n, w.layer}
	return nil
}

// drop takes a name, and what is below it, out of the tree.
func (w *Writer) drop(d *inode, name string) {
	c, ok := d.children[name]
	if !ok {
		return
	}
	delete(d.children, name)
	for n := range c.children {
		w.drop(c.inode, n)
	}
	if c.nlink--; c.nlink == 0 && c.mode&TypeMask == TypeRegular && c.size > 0 {
		w.dead = append(w.dead, extent{int64(c.addr) << blockBits, (c.size + blockSize - 1) &^ (blockSize - 1)})
	}
}

// Whiteout hides what lower layers have at path; what this layer put there
// stays. A path that does not exist is no error.
func (w *Writer) Whiteout(path string) error {
	if err := w.budget.record(); err != nil {
		return err
	}
	d, name, err := w.at(path, nil)
	if err == nil && name != "" {
		err = w.hide(d, name)
	}
	return ignoreMissing(err)
}

// Opaque hides everything that lower layers have in the directory path.
func (w *Writer) Opaque(path string) error {
	if err := w.budget.record(); err != nil {
		return err
	}
	d, err := w.walk(path, nil)
	if err != nil {
		return ignoreMissing(err)
	}
	for name := range d.children {
		if err := w.hide(d, name); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// hide removes the lower layers' part of d/name.
func (w *Writer) hide(d *inode, name string) error {
	c, ok := d.children[name]
	if !ok {
		return nil
	}
	if err := w.budget.step(); err != nil {
		return err
	}
	for n := range c.children {
		if err := w.hide(c.inode, n); err != nil {
			return err
		}
	}
	if c.layer < w.layer && len(c.children) == 0 {
		w.drop(d, name)
	}
	return nil
}
