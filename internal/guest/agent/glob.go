package agent

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// How long a call may look through files.
const (
	defaultLook = 10 * time.Second
	maxLook     = 30 * time.Second
)

// look runs f as long as the caller wants to wait, with the user's rights. It
// returns why f did not get to its end, "" if it did.
func (s *files) look(ctx context.Context, user, p string, timeout int64, f func(context.Context, FS) error) (truncated string, err error) {
	d := time.Duration(timeout)
	switch {
	case d < 0 || d > maxLook:
		return "", guest.Errorf(errdefs.ErrInvalidArgument, "the time limit is at most %v", maxLook)
	case d == 0:
		d = defaultLook
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err = s.goThrough(limited, user, func(fsys FS) error { return f(limited, fsys) }, p)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return truncatedTime, nil
	}
	return "", err
}

func (s *files) glob(ctx context.Context, q *guestv1.GlobRequest) (*guestv1.GlobResponse, error) {
	patterns, err := parseGlobs("patterns", q.GetPatterns(), false)
	if err == nil && len(patterns) == 0 {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "patterns: there is none")
	}
	if err != nil {
		return nil, err
	}
	exclude, err := parseGlobs("exclude", q.GetExclude(), true)
	if err != nil {
		return nil, err
	}
	a, left, p := new(guestv1.GlobResponse), new(skips), newPage(q.GetLimit())
	root := string(q.GetPath())
	visit := func(ctx context.Context, t Tree) error {
		w := &walk{fsys: t, depth: patterns.depth(), failed: left.failed}
		w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
			if exclude.match(ctx, rel) {
				return false, nil
			}
			if patterns.match(ctx, rel) {
				if a.Truncated = p.full(); a.Truncated != "" {
					return false, errStop
				}
				p.add(rel, i)
			}
			return true, nil
		}
		return w.run(ctx, "")
	}
	why, err := s.look(ctx, q.GetUser(), root, q.GetTimeoutNs(), func(ctx context.Context, fsys FS) error {
		return inTree(fsys, root, func(t Tree) error { return visit(ctx, t) })
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	if a.Truncated == "" {
		a.Truncated = why
	}
	a.Entries, a.Skipped = p.entries, &left.list
	return a, nil
}
