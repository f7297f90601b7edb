package agent

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// within runs f with the rights of user on a path that must stay below one of some
// directories, whatever links are in it; without directories it may lead anywhere.
// Links are followed first. What f is given is the way to where they led, in a tree
// that follows none: whoever puts a link into that way meanwhile leads f nowhere.
func (s *files) within(dirs []string, user, p string, f func(fsys FS, p string) error) error {
	return s.as(user, func(fsys FS) error {
		if len(dirs) == 0 {
			return f(fsys, p)
		}
		real, err := resolve(fsys, p)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(dirs, func(dir string) bool { return real == dir || strings.HasPrefix(real, dir+"/") }) {
			return guest.Errorf(errdefs.ErrOutOfRange, "%s leads out of the directories that are allowed", strings.ToValidUTF8(p, "\uFFFD"))
		}
		return inTree(fsys, "/", func(t Tree) error { return f(t, strings.TrimPrefix(real, "/")) })
	}, p)
}

// again runs f where within ran it, after its end: its path is good there still, and
// leads through no link.
func (s *files) again(dirs []string, user string, f func(fsys FS) error) error {
	return s.as(user, func(fsys FS) error {
		if len(dirs) == 0 {
			return f(fsys)
		}
		return inTree(fsys, "/", func(t Tree) error { return f(t) })
	})
}

// resolve follows all links of an absolute path. What is behind a name that is not
// there stays as it is.
func resolve(fsys FS, p string) (string, error) {
	const most = 40 // links, as Linux: MAXSYMLINKS
	if !path.IsAbs(p) {
		return "", guest.Errorf(errdefs.ErrInvalidArgument, "the path must be absolute")
	}
	at, rest, links := "/", strings.Split(p, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // no link is in it
			continue
		}
		next := join(at, name)
		i, err := fsys.Stat(next, false)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if slices.Contains(rest, "..") {
				return "", err
			}
			return path.Join(next, path.Join(rest...)), nil
		case err != nil:
			return "", err
		case !isLink(i):
			at = next
			continue
		}
		if links++; links > most {
			return "", &fs.PathError{Op: "open", Path: p, Err: syscall.ELOOP}
		}
		target, err := fsys.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}
