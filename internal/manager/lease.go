package manager

import (
	"context"
	"fmt"
	"sync"

	"agentbox/internal/guest/client"
	"agentbox/internal/live"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Lease is the use of a running sandbox. While there is one the sandbox is not
// idle; it may end all the same, and calls in it then fail.
type Lease struct {
	m    *Manager
	b    *box
	live *live.Box
	once sync.Once
}

// Acquire begins to use the caller's sandbox, for files, archives, watches and
// whatever else goes on in it. The caller releases the lease. A sandbox that does
// not run is a *sandbox.StateError.
func (m *Manager) Acquire(ctx context.Context, c sandbox.Caller, id string) (*Lease, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("use sandbox: %w", err)
	}
	l, err := m.lease(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("use sandbox: %w", err)
	}
	return l, nil
}

// lease begins a use, which counts from before the sandbox is reached.
func (m *Manager) lease(ctx context.Context, b *box) (*Lease, error) {
	if err := b.begin(); err != nil {
		return nil, err
	}
	l := &Lease{m: m, b: b}
	var err error
	if l.live, err = m.reach(ctx, b); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Session is the connection to the sandbox's agent.
func (l *Lease) Session() *client.Session { return l.live.Session() }

// Sandbox is the sandbox as it is now.
func (l *Lease) Sandbox() sandbox.Sandbox { return l.b.snapshot() }

// Release ends the use. It may be called more than once.
func (l *Lease) Release() {
	l.once.Do(func() {
		if l.b.finish() {
			l.m.nudge()
		}
	})
}

// usable tells whether a use may begin; mu is held.
func (b *box) usable() error {
	switch {
	case b.isGone() && b.tomb.UID != "":
		return &sandbox.GoneError{Tombstone: b.tomb}
	case b.isGone():
		return notFound()
	case b.rec.Status != sandbox.Live || b.ending:
		return &sandbox.StateError{Short: b.rec.Short, Status: b.rec.Status, Text: sandbox.NotRunning}
	}
	return nil
}

func (b *box) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(); err != nil {
		return err
	}
	b.active++
	b.touch()
	return nil
}

// pin keeps the sandbox from being idle without being a use of it; -1 ends that.
func (b *box) pin(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active += n
}

// finish ends a use and reports whether the sweeper would see its deadline too
// late without being told.
func (b *box) finish() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
	b.touch()
	return b.active == 0 && b.rec.IdleTimeout != sandbox.Never && b.rec.IdleTimeout < 2*flushEvery
}

// peek is a look at a running sandbox, which is no use of it.
func (m *Manager) peek(ctx context.Context, c sandbox.Caller, id string) (*live.Box, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	err = b.usable()
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return m.reach(ctx, b)
}

// reach returns the running sandbox with a session that is open, a new one if the
// last one broke.
func (m *Manager) reach(ctx context.Context, b *box) (*live.Box, error) {
	if l := b.running(); l != nil && connected(l) {
		return l, nil
	}
	if m.ctx.Err() != nil {
		return nil, errDraining
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	b.mu.Lock()
	err, l := b.usable(), b.live
	b.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case l != nil && connected(l):
		return l, nil // somebody else was faster
	}
	ctx = b.work(ctx)
	rec := b.snapshot()
	nextEpoch(&rec)
	if err := m.save(ctx, b, rec, nil); err != nil {
		return nil, err
	}
	if l == nil {
		if err := m.adopt(ctx, b); err != nil {
			return nil, m.unreachable(ctx, b, err)
		}
		return b.running(), nil
	}
	return l, l.Renew(ctx, m.config(&rec, m.wayOut(&rec)), rec.Epoch)
}

// unreachable is why a sandbox that nobody watches yet could not be adopted. One
// that ended meanwhile is buried.
func (m *Manager) unreachable(ctx context.Context, b *box, err error) error {
	info, look := m.look(ctx, b.uid())
	if look != nil || info.State == sandbox.Live {
		return err
	}
	m.spawn(func() {
		if err := m.lose(m.ctx, b, nil, lost(info)); err != nil {
			m.log.Error("remove a sandbox that ended", "sandbox", b.snapshot().Short, "error", err)
		}
	})
	return &sandbox.StateError{Short: b.snapshot().Short, Status: sandbox.Failed, Text: sandbox.NotRunning}
}

func connected(l *live.Box) bool {
	select {
	case <-l.Session().Done():
		return false
	default:
		return true
	}
}

// Conn is a connection to a port in a sandbox, which is in use until Close.
type Conn struct {
	*client.Conn
	lease *Lease
}

// Dial connects to a TCP port on the loopback interface of the caller's sandbox.
// The context bounds the connecting only.
func (m *Manager) Dial(ctx context.Context, c sandbox.Caller, id string, port int) (*Conn, error) {
	b, err := m.find(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("dial port %d: %w", port, err)
	}
	return m.dial(ctx, b, port)
}

func (m *Manager) dial(ctx context.Context, b *box, port int) (*Conn, error) {
	l, err := m.lease(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("dial port %d: %w", port, err)
	}
	conn, err := l.Session().DialPort(ctx, port)
	if err != nil {
		l.Release()
		return nil, err
	}
	return &Conn{conn, l}, nil
}

// Close ends the connection and the use.
func (c *Conn) Close() error {
	defer c.lease.Release()
	return c.Conn.Close()
}

// Ports lists the TCP ports on which something listens in the caller's sandbox.
// truncated tells that there are more.
func (m *Manager) Ports(ctx context.Context, c sandbox.Caller, id string) (list []client.Port, truncated bool, err error) {
	l, err := m.peek(ctx, c, id)
	if err != nil {
		return nil, false, fmt.Errorf("list ports: %w", err)
	}
	return l.Session().ListPorts(ctx)
}

// Stats are measured on the host. NotImplemented where the back end can't.
func (m *Manager) Stats(ctx context.Context, c sandbox.Caller, id string) (runtime.Stats, error) {
	b, err := m.find(ctx, c, id)
	var st runtime.Stats
	if err == nil {
		if r, ok := runtime.As[runtime.StatsReader](m.opts.Runtime); ok {
			st, err = r.Stats(ctx, b.uid())
		} else {
			err = unsupported("measuring")
		}
	}
	if err != nil {
		return st, fmt.Errorf("measure sandbox: %w", err)
	}
	st.BytesOut, st.BytesIn = m.opts.Egress.Transferred(b.uid())
	return st, nil
}
