package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// WatchKind is what happened to a file.
type WatchKind string

// Kinds of events.
const (
	WatchCreate WatchKind = "create" // it is there, new or by a new name
	WatchWrite  WatchKind = "write"  // its content changed
	WatchRemove WatchKind = "remove" // it is gone
	WatchRename WatchKind = "rename" // its name is gone; the new one, if it is watched, is a create
	WatchChmod  WatchKind = "chmod"  // permissions, owner or times changed
	// WatchOverflow: events were lost, or the directory is not followed because
	// there are too many. What was known of the tree must be read again: all that
	// was lost happened before this is read, and later changes are told.
	WatchOverflow WatchKind = "overflow"
)

var watchKinds = map[guestv1.WatchKind]WatchKind{
	guestv1.WatchKind_WATCH_KIND_CREATE: WatchCreate, guestv1.WatchKind_WATCH_KIND_WRITE: WatchWrite,
	guestv1.WatchKind_WATCH_KIND_REMOVE: WatchRemove, guestv1.WatchKind_WATCH_KIND_RENAME: WatchRename,
	guestv1.WatchKind_WATCH_KIND_CHMOD: WatchChmod, guestv1.WatchKind_WATCH_KIND_OVERFLOW: WatchOverflow,
}

// WatchEvent is one change. Path is that of the directory with what is below it,
// Name is relative to the directory; "" is the directory itself.
type WatchEvent struct {
	Kind       WatchKind
	Path, Name string
	// Info is what is there now, for create, write and chmod with WatchOptions.Info;
	// nil if it is gone already.
	Info *FileInfo
}

// WatchOptions govern Watch.
type WatchOptions struct {
	User      string
	Recursive bool // directories below too, also those that come later
	Info      bool // describe what changed
}

// Watch is a stream of changes.
type Watch struct {
	dir    string
	body   *body
	frames *guest.FrameReader
}

// Watch begins to tell of changes in a directory; when it returns, changes are
// seen. It ends with the context or Close, or when the directory itself is
// removed or renamed. A sandbox has 64 watches at most, each follows 8,192
// directories and holds 8,192 events for a client that does not read; beyond
// that it tells an overflow. What is in a directory that is new may be told
// twice. Links are not followed but for dir itself. Temporary files of uploads
// are not told.
func (s *Session) Watch(ctx context.Context, dir string, o WatchOptions) (*Watch, error) {
	q := url.Values{"path": {dir}, "user": {o.User}}
	setFlag(q, "recursive", o.Recursive)
	setFlag(q, "info", o.Info)
	b, err := s.get(ctx, guest.PathWatch, q)
	if err != nil {
		return nil, fmt.Errorf("watch %q: %w", dir, err)
	}
	return &Watch{dir, b, guest.NewFrameReader(bufio.NewReader(b))}, nil
}

// Next waits for events. io.EOF is the end of the directory. It is called from
// one goroutine at a time.
func (w *Watch) Next() ([]WatchEvent, error) {
	for {
		t, p, err := w.frames.Next()
		if err == io.EOF {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("watch %q: %w", w.dir, err)
		}
		m := new(guestv1.WatchEvents)
		if t != guest.FrameWatch {
			continue // of a later version of the protocol
		}
		if err := proto.Unmarshal(p, m); err != nil {
			return nil, fmt.Errorf("watch %q: %w: decode events: %w", w.dir, errdefs.ErrInternal, err)
		}
		if events := w.events(m); len(events) > 0 {
			return events, nil
		}
	}
}

func (w *Watch) events(m *guestv1.WatchEvents) (events []WatchEvent) {
	for _, e := range m.GetEvents() {
		kind, ok := watchKinds[e.GetKind()]
		if !ok {
			continue
		}
		ev := WatchEvent{Kind: kind, Name: string(e.GetPath()), Path: below(w.dir, string(e.GetPath()))}
		if e.Info != nil {
			i := fileInfo(e.Info, ev.Path)
			ev.Info = &i
		}
		events = append(events, ev)
	}
	return events
}

// Close ends the watch, and a Next that waits. It may be called from any
// goroutine.
func (w *Watch) Close() error { return w.body.Close() }
