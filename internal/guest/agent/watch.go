package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

const (
	// maxWatchers is how many watches a sandbox may have at once.
	maxWatchers = 64
	// maxWatched is how many directories one watch follows: more than a large
	// project without its dependencies has, and some MiB of the sandbox's memory.
	maxWatched = 8 << 10
)

// watch streams changes below a directory until its client leaves.
func (s *files) watch(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	if q.err != nil {
		guest.WriteError(w, q.err)
		return
	}
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		guest.WriteError(w, guest.Errorf(errdefs.ErrResourceExhausted, "there are %d watches already", maxWatchers))
		return
	}
	t := &watcher{
		files: s, user: q.v.Get("user"), root: q.v.Get("path"), recursive: q.flag("recursive"), info: q.flag("info"),
		paths: map[int]string{}, ids: map[string]int{}, queue: newEventQueue(),
	}
	if err := t.start(r.Context()); err != nil {
		guest.WriteError(w, err)
		return
	}
	defer t.stop()
	sendBody(w, r, func(out io.Writer) error {
		ctl := http.NewResponseController(w)
		if err := ctl.Flush(); err != nil {
			return err
		}
		return t.send(r.Context(), out, ctl.Flush)
	})
}

// watcher is one watch. A goroutine of its own takes the changes from the kernel,
// so that a slow client costs events, not the sandbox's memory.
type watcher struct {
	files           *files
	user, root      string
	recursive, info bool

	notifier Notifier
	done     chan struct{} // closed when the goroutine has ended
	queue    *eventQueue

	// Of the goroutine:
	paths map[int]string // directories that are followed, relative to root
	ids   map[string]int
	top   fileID // the directory that root was when the watch began
}

// start follows what is there and begins to take changes, until ctx or stop.
func (t *watcher) start(ctx context.Context) (err error) {
	if err := checkPath(t.root); err != nil {
		return err
	}
	if t.notifier, err = t.files.files.Notify(); err != nil {
		return err
	}
	err = t.files.as(t.user, func(fsys FS) error {
		return inTree(fsys, t.root, func(tree Tree) error {
			i, err := tree.Stat("", false)
			if err != nil {
				return err
			}
			t.top = idOf(i)
			return t.follow(ctx, tree, "", false)
		})
	}, t.root)
	if err != nil {
		return errors.Join(err, t.notifier.Close())
	}
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		defer t.queue.end()
		for t.take(ctx) {
		}
	}()
	return nil
}

func (t *watcher) stop() {
	_ = t.notifier.Close()
	<-t.done
}

// follow watches a directory and, if that is asked for, those below. found tells
// of what is in them: it may have come before the watch. A directory that can't
// be followed ends the start of a watch, and is told as an overflow later.
func (t *watcher) follow(ctx context.Context, tree Tree, rel string, found bool) error {
	if err := t.add(tree, rel); err != nil || !t.recursive {
		return err
	}
	w := &walk{fsys: tree, root: rel}
	w.failed = func(sub string, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil // what the user can't read is not watched
		}
		return err
	}
	w.enter = func(sub string, i *guestv1.FileInfo) (bool, error) {
		at := join(rel, sub)
		if found {
			t.queue.add(guestv1.WatchKind_WATCH_KIND_CREATE, at)
		}
		if !isDir(i) {
			return false, nil
		}
		err := t.add(tree, at)
		switch {
		case err == nil:
			return true, nil
		case isGone(err), errors.Is(err, fs.ErrPermission):
			return false, nil
		}
		return false, err
	}
	return w.run(ctx, "")
}

func (t *watcher) add(tree Tree, rel string) error {
	if len(t.paths) >= maxWatched {
		return guest.Errorf(errdefs.ErrResourceExhausted, "watch %s: more than %d directories", t.root, maxWatched)
	}
	id, err := tree.Watch(t.notifier, rel)
	if err != nil {
		return err
	}
	t.paths[id], t.ids[rel] = rel, id
	return nil
}

// take handles what the kernel tells next, and says whether to go on.
func (t *watcher) take(ctx context.Context) bool {
	changes, err := t.notifier.Next()
	if err != nil {
		return false
	}
	for _, c := range changes {
		if c.Kind == guestv1.WatchKind_WATCH_KIND_OVERFLOW {
			t.queue.add(c.Kind, "")
			continue
		}
		dir, ok := t.paths[c.ID]
		if !ok {
			continue
		}
		if c.Name == "" { // the directory itself
			delete(t.paths, c.ID)
			if t.ids[dir] == c.ID {
				delete(t.ids, dir)
			}
			if dir == "" {
				t.queue.add(c.Kind, "")
				return false
			}
			continue
		}
		t.change(ctx, c, join(dir, c.Name))
	}
	return true
}

// errMoved is that a watch's directory has another path now.
var errMoved = errors.New("the directory is not at its path any more")

func (t *watcher) change(ctx context.Context, c Change, rel string) {
	if isTemp(c.Name) {
		return // an upload; it is told when it has its name
	}
	t.queue.add(c.Kind, rel)
	if !t.recursive || !c.Dir {
		return
	}
	switch c.Kind {
	case guestv1.WatchKind_WATCH_KIND_RENAME:
		t.leave(rel)
	case guestv1.WatchKind_WATCH_KIND_CREATE:
		err := t.files.as(t.user, func(fsys FS) error {
			return inTree(fsys, t.root, func(tree Tree) error {
				// One above it may have become a link to elsewhere.
				if i, err := tree.Stat("", false); err != nil || idOf(i) != t.top {
					return errors.Join(err, errMoved)
				}
				return t.follow(ctx, tree, rel, true)
			})
		})
		if err != nil && !isGone(err) && !errors.Is(err, fs.ErrPermission) {
			t.queue.add(guestv1.WatchKind_WATCH_KIND_OVERFLOW, rel)
		}
	}
}

// leave follows a directory no more that has another name now.
func (t *watcher) leave(rel string) {
	for dir, id := range maps.Clone(t.ids) {
		if dir == rel || strings.HasPrefix(dir, rel+"/") {
			delete(t.ids, dir)
			delete(t.paths, id)
			t.notifier.Remove(id)
		}
	}
}
