package manager

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Get returns the caller's sandbox of an id. For a day after its end the error
// is a *sandbox.GoneError.
func (m *Manager) Get(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("get sandbox: %w", err)
	}
	return b.snapshot(), nil
}

// find returns the caller's sandbox of an id in any form.
func (m *Manager) find(ctx context.Context, c sandbox.Caller, id string) (*box, error) {
	if b := m.index.find(c.Owner, c.Door, id); b != nil {
		return b, nil
	}
	return nil, m.missing(ctx, c.Owner, id)
}

// missing tells why there is no such sandbox.
func (m *Manager) missing(ctx context.Context, owner, id string) error {
	dead, err := m.opts.Store.Tombstone(ctx, owner, id)
	switch {
	case errdefs.IsNotFound(err):
		return notFound()
	case err != nil:
		return err
	}
	return &sandbox.GoneError{Tombstone: dead}
}

func notFound() error { return sandbox.Refuse(errdefs.ErrNotFound, "Sandbox not found") }

func unsupported(what string) error {
	return sandbox.Refuse(errdefs.ErrNotImplemented, "%s: this server's back end can't", what)
}

// List returns a page of the caller's sandboxes, oldest first. Sandboxes that
// come or go between two pages don't disturb the others.
func (m *Manager) List(_ context.Context, c sandbox.Caller, f sandbox.Filter) (sandbox.Page, error) {
	limit := cmp.Or(f.Limit, sandbox.DefaultPage)
	if limit < 1 || limit > sandbox.MaxPage {
		return sandbox.Page{}, &sandbox.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Allowed: fmt.Sprintf("1 to %d", sandbox.MaxPage)}
	}
	after, err := parseCursor(f.Cursor)
	if err != nil {
		return sandbox.Page{}, err
	}
	var page sandbox.Page
	for _, b := range m.index.all() {
		sb := b.snapshot()
		if sb.Owner == c.Owner && selects(f, &sb) && after.before(positionOf(&sb)) {
			page.Items = append(page.Items, sb)
		}
	}
	slices.SortFunc(page.Items, func(a, b sandbox.Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.UID, b.UID))
	})
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = positionOf(&page.Items[limit-1]).cursor()
	}
	return page, nil
}

func selects(f sandbox.Filter, sb *sandbox.Sandbox) bool {
	if f.Name != "" && f.Name != sb.Name || len(f.Status) > 0 && !slices.Contains(f.Status, sb.Status) {
		return false
	}
	for k, v := range f.Labels {
		if got, ok := sb.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// position is a place in the order of lists. A cursor is one in text; it opens
// nothing that its user could not list without it.
type position struct {
	created time.Time
	uid     string
}

func positionOf(sb *sandbox.Sandbox) position { return position{sb.Created, sb.UID} }

func (p position) before(q position) bool {
	return cmp.Or(p.created.Compare(q.created), strings.Compare(p.uid, q.uid)) < 0
}

func (p position) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d:%s", p.created.UnixNano(), p.uid))
}

func parseCursor(s string) (position, error) {
	if s == "" {
		return position{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(s)
	nanos, uid, ok := strings.Cut(string(text), ":")
	n, bad := strconv.ParseInt(nanos, 10, 64)
	if err != nil || !ok || bad != nil {
		return position{}, &sandbox.InvalidError{Field: "cursor", Value: s[:min(len(s), 64)], Allowed: "what the page before gave"}
	}
	return position{time.Unix(0, n), uid}, nil
}
