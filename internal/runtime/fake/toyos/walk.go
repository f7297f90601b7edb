package toyos

import (
	"strings"
	"syscall"
)

// place is where a path leads: an entry of a directory, which may not exist.
type place struct {
	dir  *node
	name string // "" for the root and for paths that end in "." or ".."
	node *node  // nil when there is none
}

// find resolves p. d.mu is held.
func (v *view) find(p string, follow bool) (place, error) {
	if v.tree != nil && strings.IndexByte(p, 0) < 0 {
		links := maxLinks // each further one is too many
		return v.walk(v.tree, p, false, &links)
	}
	switch {
	case p == "" || strings.IndexByte(p, 0) >= 0:
		return place{}, syscall.EINVAL
	case len(p) >= maxPath:
		return place{}, syscall.ENAMETOOLONG
	}
	if !strings.HasPrefix(p, "/") {
		p = v.dir + "/" + p
	}
	links := 0
	return v.walk(v.d.root, p, follow || strings.HasSuffix(p, "/"), &links)
}

func (v *view) walk(at *node, p string, follow bool, links *int) (place, error) {
	if strings.HasPrefix(p, "/") {
		at = v.d.root
	}
	parts := strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
	here := place{dir: at.parent, node: at}
	for i, part := range parts {
		if here.node == nil {
			return place{}, syscall.ENOENT
		}
		if !here.node.is(syscall.S_IFDIR) {
			return place{}, syscall.ENOTDIR
		}
		if err := v.may(here.node, mayExec); err != nil {
			return place{}, err
		}
		next, err := v.step(here.node, part)
		if err != nil {
			return place{}, err
		}
		if next.node != nil && next.node.is(syscall.S_IFLNK) && (follow || i < len(parts)-1) {
			if *links++; *links > maxLinks {
				return place{}, syscall.ELOOP
			}
			if next, err = v.walk(next.dir, next.node.target, true, links); err != nil {
				return place{}, err
			}
		}
		here = next
	}
	return here, nil
}

func (v *view) step(at *node, part string) (place, error) {
	switch {
	case part == ".":
		return place{dir: at.parent, node: at}, nil
	case part == "..":
		return place{dir: at.parent.parent, node: at.parent}, nil
	case len(part) > maxName:
		return place{}, syscall.ENAMETOOLONG
	}
	return place{dir: at, name: part, node: at.entries[part]}, nil
}

// existing resolves p to something that exists.
func (v *view) existing(p string, follow bool) (place, error) {
	at, err := v.find(p, follow)
	if err == nil && at.node == nil {
		err = syscall.ENOENT
	}
	return at, err
}

// vacant resolves p to a name that is free, in a directory that may be written.
func (v *view) vacant(p string) (place, error) {
	at, err := v.find(p, false)
	switch {
	case err != nil:
		return at, err
	case at.node != nil:
		return at, syscall.EEXIST
	}
	return at, v.mayChange(at)
}
