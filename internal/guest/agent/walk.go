package agent

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// walk goes through a tree. A directory comes before what is in it, the entries
// of one directory are sorted bytewise, and no link is followed. It keeps a stack
// of its own, and of a directory only some names at a time, so that neither depth
// nor width of a tree cost the agent more than that.
type walk struct {
	fsys  Tree
	root  string // a directory of the tree
	depth int    // levels below root; 0: all

	// enter is called for each entry with its path below root, and says whether
	// to go into a directory.
	enter func(rel string, i *guestv1.FileInfo) (into bool, err error)
	// leave is called after what is in a directory, unless it is nil. Of the
	// directory it is told mode and time of change of content only.
	leave func(rel string, i *guestv1.FileInfo) error
	// failed decides about entries that can't be examined and directories that
	// can't be read: the error that it returns ends the walk. Nil: any does. What
	// is gone meanwhile is no failure, see isGone.
	failed func(rel string, err error) error

	stack []level
	path  string // of the last level; the others' are the beginnings of it
}

// level is a directory whose entries are visited. There may be some ten thousand of
// them, and as much in their paths.
type level struct {
	size  int               // of its path
	info  *guestv1.FileInfo // nil for the root
	after string            // last name that was visited
	names []string
	more  bool // names holds not all that come
	begun bool
}

// namesAtOnce bounds how many names of one directory are held. Fewer would mean
// to read a directory of a million files too often.
const namesAtOnce = 16 << 10

// run walks what comes after the given path below root; "" is all of it.
func (w *walk) run(ctx context.Context, after string) error {
	w.resume(after)
	for len(w.stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		top := &w.stack[len(w.stack)-1]
		if len(top.names) == 0 && (top.more || !top.begun) {
			if err := w.load(top); err != nil {
				return err
			}
		}
		if len(top.names) == 0 {
			done := *top
			w.stack = w.stack[:len(w.stack)-1]
			if w.leave != nil && done.info != nil {
				if err := w.leave(w.path[:done.size], done.info); err != nil {
					return err
				}
			}
			continue
		}
		name := top.names[0]
		top.names, top.after = top.names[1:], name
		if err := w.visit(join(w.path[:top.size], name)); err != nil {
			return err
		}
	}
	return nil
}

// resume fills the stack as it was after the given path had been visited.
func (w *walk) resume(after string) {
	name, rest, deeper := strings.Cut(after, "/")
	w.stack, w.path = append(w.stack[:0], level{after: name}), ""
	for rel := name; after != ""; rel = join(rel, name) {
		i, err := w.fsys.Stat(join(w.root, rel), false)
		if err != nil || !isDir(i) || w.depth > 0 && len(w.stack) >= w.depth {
			return
		}
		if !deeper {
			w.push(rel, i, "")
			return
		}
		name, rest, deeper = strings.Cut(rest, "/")
		w.push(rel, i, name)
	}
}

func (w *walk) push(rel string, i *guestv1.FileInfo, after string) {
	kept := &guestv1.FileInfo{Mode: i.GetMode(), MtimeNs: i.GetMtimeNs()}
	w.stack = append(w.stack, level{size: len(rel), info: kept, after: after})
	w.path = rel
}

func (w *walk) load(l *level) error {
	var err error
	l.begun = true
	rel := w.path[:l.size]
	l.names, l.more, err = w.fsys.Names(join(w.root, rel), l.after, namesAtOnce)
	if err != nil {
		l.names, l.more = nil, false
		if rel == "" {
			return err
		}
	}
	return w.fail(rel, err)
}

func (w *walk) visit(rel string) error {
	i, err := w.fsys.Stat(join(w.root, rel), false)
	if err != nil {
		return w.fail(rel, err)
	}
	into, err := w.enter(rel, i)
	if err == nil && into && isDir(i) && (w.depth == 0 || len(w.stack) < w.depth) {
		w.push(rel, i, "")
	}
	return err
}

func (w *walk) fail(rel string, err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	if w.failed == nil {
		return err
	}
	return w.failed(rel, err)
}

// isGone tells that what was seen in a tree is there no more: it was removed, or
// something else, such as a link, took the place of it or of a directory above.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR)
}

// inTree runs f on the tree of a directory, or of what a link leads to.
func inTree(fsys FS, dir string, f func(Tree) error) error {
	t, err := fsys.Tree(dir, true)
	if err != nil {
		return err
	}
	return errors.Join(f(t), t.Close())
}

// skips collects what a call left out.
type skips struct {
	list guestv1.SkippedList
	room int
}

// What of a list of skipped entries is told by name: as much as fits into the
// trailer of an answer.
const (
	maxSkipped     = 100
	maxSkippedSize = 1 << 10
)

func (s *skips) add(rel, reason string) {
	s.list.Total++
	s.room += len(rel) + len(reason) + 8
	if len(s.list.First) < maxSkipped && s.room <= maxSkippedSize {
		s.list.First = append(s.list.First, &guestv1.Skipped{Path: []byte(rel), Reason: reason})
	}
}

// failed is for walk.failed: what may not be read is left out.
func (s *skips) failed(rel string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		s.add(rel, "denied")
		return nil
	}
	return err
}

// Why an answer may not be complete.
const (
	truncatedCount = "count"
	truncatedSize  = "size"
	truncatedTime  = "time"
)
