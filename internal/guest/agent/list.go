package agent

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Entries in one answer of List.
const (
	defaultEntries = 1_000
	maxEntries     = 10_000
	// maxDepth is what List goes into at most.
	maxDepth = 64
)

// errStop ends a walk that has enough.
var errStop = errors.New("enough")

// page collects entries up to the limits of an answer.
type page struct {
	entries []*guestv1.FileInfo
	limit   int
	room    int // bytes
}

func newPage(limit uint32) *page {
	if limit == 0 {
		limit = defaultEntries
	}
	return &page{limit: int(min(limit, maxEntries)), room: maxList}
}

// full tells why nothing more fits, "" if it does.
func (p *page) full() string {
	switch {
	case len(p.entries) >= p.limit:
		return truncatedCount
	case p.room < 0:
		return truncatedSize
	}
	return ""
}

func (p *page) add(rel string, i *guestv1.FileInfo) {
	i.Path, i.Name = []byte(rel), []byte(path.Base(rel))
	p.entries = append(p.entries, i)
	p.room -= proto.Size(i) + 8
}

func (s *files) list(ctx context.Context, q *guestv1.ListRequest) (*guestv1.ListResponse, error) {
	if q.GetDepth() > maxDepth {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "depth is at most %d", maxDepth)
	}
	cursor := string(q.GetCursor())
	if _, ok := clean(cursor); !ok && cursor != "" {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "the cursor is none that an answer had")
	}
	a := new(guestv1.ListResponse)
	dir := string(q.GetPath())
	err := s.as(q.GetUser(), func(fsys FS) error {
		p := newPage(q.GetLimit())
		w := &walk{depth: int(max(q.GetDepth(), 1)), failed: ignoreDenied}
		w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
			if p.full() != "" {
				a.NextCursor = p.entries[len(p.entries)-1].GetPath()
				return false, errStop
			}
			p.add(rel, i)
			return true, nil
		}
		err := inTree(fsys, dir, func(t Tree) error {
			w.fsys = t
			return w.run(ctx, cursor)
		})
		a.Entries = p.entries
		if errors.Is(err, errStop) {
			err = nil
		}
		return err
	}, dir)
	return a, err
}

// ignoreDenied is for walk.failed: the directory that may not be read is listed,
// what is in it is not.
func ignoreDenied(_ string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
