package agent

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"syscall"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Bounds of a search.
const (
	defaultLine   = 500
	maxLine       = 4 << 10
	maxContext    = 10
	maxSearchFile = 32 << 20 // default: larger ones are data, not text
)

// searcher looks for an expression in files.
type searcher struct {
	q                *guestv1.SearchRequest
	re               *regexp.Regexp
	include, exclude globs
	limit, maxLine   int
	maxSize          int64

	a     guestv1.SearchResponse
	room  int // bytes of the answer
	skips skips
}

func newSearcher(q *guestv1.SearchRequest) (*searcher, error) {
	s := &searcher{
		q: q, limit: int(cmp.Or(min(q.GetLimit(), maxEntries), defaultEntries)), room: maxList,
		maxLine: int(cmp.Or(q.GetMaxLine(), defaultLine)), maxSize: cmp.Or(q.GetMaxFileSize(), maxSearchFile),
	}
	expr := q.GetPattern()
	bad := func(format string, args ...any) (*searcher, error) {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, format, args...)
	}
	switch {
	case expr == "":
		return bad("pattern: it is empty")
	case len(expr) > maxPattern:
		return bad("pattern: it has more than %d bytes", maxPattern)
	case s.maxLine > maxLine:
		return bad("max_line is at most %d", maxLine)
	case q.GetContext() > maxContext:
		return bad("context is at most %d lines", maxContext)
	case s.maxSize < 0:
		return bad("max_file_size must not be negative")
	}
	if q.GetLiteral() {
		expr = regexp.QuoteMeta(expr)
	}
	if q.GetIgnoreCase() {
		expr = "(?i)" + expr
	}
	if err := checkExpr(expr); err != nil {
		return bad("pattern: %v", err)
	}
	s.re = regexp.MustCompile(expr)
	var err error
	if s.include, err = parseGlobs("include", q.GetInclude(), true); err != nil {
		return nil, err
	}
	s.exclude, err = parseGlobs("exclude", q.GetExclude(), true)
	return s, err
}

func (s *files) search(ctx context.Context, q *guestv1.SearchRequest) (*guestv1.SearchResponse, error) {
	f, err := newSearcher(q)
	if err != nil {
		return nil, err
	}
	root := string(q.GetPath())
	why, err := s.look(ctx, q.GetUser(), root, q.GetTimeoutNs(), func(ctx context.Context, fsys FS) error {
		return f.look(ctx, fsys, root)
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	if f.a.Truncated == "" {
		f.a.Truncated = why
	}
	f.a.Skipped = &f.skips.list
	return &f.a, nil
}

// look searches a file, or the tree of a directory.
func (s *searcher) look(ctx context.Context, fsys FS, p string) error {
	err := inTree(fsys, p, func(t Tree) error { return s.tree(ctx, t) })
	if !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	f, err := fsys.Open(p, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.file(ctx, "", f)
}

func (s *searcher) tree(ctx context.Context, t Tree) error {
	w := &walk{fsys: t, failed: s.skips.failed}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		switch {
		case s.exclude.match(ctx, rel):
			return false, nil
		case !isFile(i) || len(s.include) > 0 && !s.include.match(ctx, rel):
			return true, nil
		case i.GetSize() > s.maxSize:
			s.skips.add(rel, "size")
			return false, nil
		}
		f, err := t.Open(rel, i)
		if err != nil {
			if isGone(err) {
				return false, nil
			}
			return false, s.skips.failed(rel, err)
		}
		defer f.Close()
		return false, s.file(ctx, rel, f)
	}
	return w.run(ctx, "")
}

// add takes a match, and tells when there is no room for more.
func (s *searcher) add(m *guestv1.SearchMatch) error {
	switch {
	case len(s.a.Matches) >= s.limit:
		s.a.Truncated = truncatedCount
		return errStop
	case s.room < 0:
		s.a.Truncated = truncatedSize
		return errStop
	}
	s.a.Matches = append(s.a.Matches, m)
	s.room -= proto.Size(m) + 8 + 2*maxContext*s.maxLine*min(int(s.q.GetContext()), 1)
	return nil
}
