package agentbox

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync"
)

// Box is a sandbox of a server. Many goroutines may use it. Its methods that need a
// running one are ErrNotRunning while it is stopped.
type Box struct {
	Files    *Files
	Network  *BoxNetwork
	Packages *Packages
	Sessions *Sessions

	c  *Client
	id string

	mu   sync.Mutex
	info Sandbox
}

func (c *Client) box(id string, info Sandbox) *Box {
	b := &Box{c: c, id: id, info: info}
	b.Files, b.Network, b.Packages, b.Sessions = &Files{b: b}, &BoxNetwork{b}, &Packages{b}, &Sessions{b}
	return b
}

// Create makes a sandbox. It returns when commands can run.
func (c *Client) Create(ctx context.Context, o CreateOptions) (*Box, error) {
	q := call{method: http.MethodPost, path: "/sandboxes", in: o}
	info, err := ask[Sandbox](ctx, c, q.once(o.IdempotencyKey))
	if err != nil {
		return nil, err
	}
	return c.box(info.ID, info), nil
}

// Get finds a sandbox by its id, short id, label or name.
func (c *Client) Get(ctx context.Context, id string) (*Box, error) {
	info, err := ask[Sandbox](ctx, c, call{method: http.MethodGet, path: inSandbox(id)})
	if err != nil {
		return nil, err
	}
	return c.box(info.ID, info), nil
}

// Box is a sandbox that you know to be there: nothing is asked, and Info is empty until
// Refresh.
func (c *Client) Box(id string) *Box { return c.box(id, Sandbox{}) }

// List goes through your sandboxes. An error ends it.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[*Box, error] {
	query := url.Values{"status": o.Status}
	for name, value := range o.Labels {
		query.Add("label", name+"="+value)
	}
	if o.Name != "" {
		query.Set("name", o.Name)
	}
	return func(yield func(*Box, error) bool) {
		for info, err := range pages[Sandbox](ctx, c, "/sandboxes", query) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(c.box(info.ID, info), nil) {
				return
			}
		}
	}
}

// inSandbox is the path of a sandbox's route.
func inSandbox(id string, parts ...string) string {
	path := "/sandboxes/" + url.PathEscape(id)
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// in is the path of a route of this sandbox.
func (b *Box) in(parts ...string) string { return inSandbox(b.id, parts...) }

// ID is what the sandbox is asked for by.
func (b *Box) ID() string { return b.id }

// Info is the sandbox as the server last described it to this Box.
func (b *Box) Info() Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

// Refresh asks for the sandbox's state.
func (b *Box) Refresh(ctx context.Context) (Sandbox, error) {
	return b.described(ctx, call{method: http.MethodGet, path: b.in()})
}

// Update changes a sandbox. Programs see new memory and cores after its next start.
func (b *Box) Update(ctx context.Context, o UpdateOptions) (Sandbox, error) {
	return b.described(ctx, call{method: http.MethodPatch, path: b.in(), in: o})
}

// Stop stops a sandbox; its files stay. What runs in it ends.
func (b *Box) Stop(ctx context.Context) error {
	_, err := b.described(ctx, call{method: http.MethodPost, path: b.in("stop")})
	return err
}

// Start starts a stopped sandbox. It returns when commands can run.
func (b *Box) Start(ctx context.Context) error {
	_, err := b.described(ctx, call{method: http.MethodPost, path: b.in("start")})
	return err
}

// described sends a request whose answer is the sandbox.
func (b *Box) described(ctx context.Context, q call) (Sandbox, error) {
	info, err := ask[Sandbox](ctx, b.c, q)
	if err != nil {
		return Sandbox{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.info = info
	return info, nil
}

// Destroy ends a sandbox with all that is in it; volumes and the storage of a tenant
// stay. One that is gone is ErrNotFound.
func (b *Box) Destroy(ctx context.Context) error {
	return b.c.tell(ctx, call{method: http.MethodDelete, path: b.in()})
}

// DestroyWithStorage is Destroy that also removes the storage of its tenant.
func (b *Box) DestroyWithStorage(ctx context.Context) error {
	return b.c.tell(ctx, call{method: http.MethodDelete, path: b.in(), query: url.Values{"remove_storage": {"true"}}})
}

// Stats is what the sandbox uses now. Looking does not keep it from being idle.
func (b *Box) Stats(ctx context.Context) (Stats, error) {
	return ask[Stats](ctx, b.c, call{method: http.MethodGet, path: b.in("stats")})
}

// FollowStats goes through what the sandbox uses, once a second, until it is gone.
func (b *Box) FollowStats(ctx context.Context) iter.Seq2[Stats, error] {
	return follow[Stats](ctx, b.c, call{method: http.MethodGet, path: b.in("stats"), query: url.Values{"stream": {"true"}}})
}

// Isolation is what keeps the sandbox from the host.
func (b *Box) Isolation(ctx context.Context) (Isolation, error) {
	return ask[Isolation](ctx, b.c, call{method: http.MethodGet, path: b.in("isolation")})
}

// Events goes through what happened to the sandbox, oldest first.
func (b *Box) Events(ctx context.Context) iter.Seq2[LifeEvent, error] {
	return pages[LifeEvent](ctx, b.c, b.in("events"), nil)
}

// FollowEvents goes through what happens to the sandbox after the event with the number
// after, 0: from the first on, until it is gone.
func (b *Box) FollowEvents(ctx context.Context, after int64) iter.Seq2[LifeEvent, error] {
	query := url.Values{"follow": {"true"}}
	if after > 0 {
		query.Set("cursor", strconv.FormatInt(after, 10))
	}
	return follow[LifeEvent](ctx, b.c, call{method: http.MethodGet, path: b.in("events"), query: query})
}
