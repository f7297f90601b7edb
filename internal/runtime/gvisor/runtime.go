package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"gvisor.dev/gvisor/runsc/config"

	"agentbox/internal/cgroup"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Options of [New].
type Options struct {
	// Dir holds everything of this back end; the caller makes sure that one
	// process at a time uses it. Its path is short (see MaxDir).
	Dir string
	// EnginePath is the engine ELF with its sidecars beside it. All runtimes of
	// one process use the same.
	EnginePath string
	// GuestPath is the guest agent's ELF on the host. It is executed in a
	// sandbox to hand over a new stream.
	GuestPath string
	// Cgroups are the host's control groups for this owner.
	Cgroups *cgroup.Host
	// Rootless: the sandboxes run as the calling user, who is their root.
	// Always so for a caller who is not root.
	Rootless bool
	// Log takes what an operator may want to know. Default: nothing.
	Log *slog.Logger
}

// MaxDir is the longest path of [Options.Dir]: paths of sockets are limited to
// 107 bytes, and gVisor would put them elsewhere.
const MaxDir = 107 - len("/run/runsc-.sock") - engineIDLen

// Runtime is the gVisor back end.
type Runtime struct {
	opts     Options
	conf     *config.Config
	rootless bool
	log      *slog.Logger
	events   runtime.Events

	mu     sync.Mutex
	boxes  map[string]*box
	closed bool
}

var (
	_ runtime.Runtime     = (*Runtime)(nil)
	_ runtime.Suspender   = (*Runtime)(nil)
	_ runtime.StatsReader = (*Runtime)(nil)
	_ runtime.OOMReader   = (*Runtime)(nil)
	_ runtime.Resizer     = (*Runtime)(nil)
)

// New opens the back end and takes up the sandboxes that are in Options.Dir.
func New(o Options) (*Runtime, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open gvisor back end: %w", err)
	}
	if len(dir) > MaxDir {
		return nil, fmt.Errorf("open gvisor back end: the path %s is longer than %d bytes: %w", dir, MaxDir, errdefs.ErrInvalidArgument)
	}
	o.Dir = dir
	r := &Runtime{opts: o, rootless: o.Rootless || os.Geteuid() != 0, log: o.Log, boxes: map[string]*box{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if err := useEngine(o.EnginePath); err != nil {
		return nil, err
	}
	for _, d := range []string{r.runDir(), r.boxesDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open gvisor back end: %w", err)
		}
	}
	if r.conf, err = newConfig(r.runDir(), r.rootless); err != nil {
		return nil, err
	}
	if err := r.takeUp(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

const boxesName = "sandboxes"

func (r *Runtime) runDir() string          { return filepath.Join(r.opts.Dir, "run") }
func (r *Runtime) boxesDir() string        { return filepath.Join(r.opts.Dir, boxesName) }
func (r *Runtime) crashesDir() string      { return filepath.Join(r.opts.Dir, "crashes") }
func (r *Runtime) boxDir(id string) string { return filepath.Join(r.boxesDir(), id) }

// takeUp makes boxes of all sandboxes that another process left, and of what is left
// of those whose directory was lost: such a box can be destroyed.
func (r *Runtime) takeUp() error {
	all, err := os.ReadDir(r.boxesDir())
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, e := range all {
		r.takeUpBox(e.Name())
	}
	groups, err := r.opts.Cgroups.Own()
	if err != nil {
		return err
	}
	for _, g := range groups {
		r.takeUpBox(g.ID())
	}
	return r.takeUpStates()
}

// takeUpStates makes boxes of sandboxes of which gVisor's state is all that is left.
// Its files have the first digits of their ids; the others nobody knows.
func (r *Runtime) takeUpStates() error {
	files, err := os.ReadDir(r.runDir())
	if err != nil {
		return fmt.Errorf("list gVisor's state: %w", err)
	}
	known := map[string]bool{}
	for id := range r.boxes {
		known[id[:engineIDLen]] = true
	}
	for _, f := range files {
		name := strings.TrimPrefix(f.Name(), "runsc-")
		if len(name) < engineIDLen || known[name[:engineIDLen]] {
			continue
		}
		r.takeUpBox(name[:engineIDLen] + strings.Repeat("0", ids.UIDLen-engineIDLen))
	}
	return nil
}

// takeUpBox makes the box of a sandbox that another process left, if this is the
// name of one.
func (r *Runtime) takeUpBox(id string) {
	if ids.IsUID(id) && r.boxes[id] == nil {
		r.boxes[id] = r.recoverBox(id)
	}
}

// Capabilities implements runtime.Runtime.
func (r *Runtime) Capabilities() runtime.Capabilities {
	c := runtime.Capabilities{
		Name: "gvisor", Version: gvisorVersion(),
		Mode:        "root, " + r.opts.Cgroups.Mode().String(),
		NotEnforced: r.notEnforced(),
		HostUser:    r.hostUser(), HostUsers: idCount, Seccomp: true,
		Guest: true, Stop: true, Suspend: true,
	}
	if r.rootless {
		c.Mode, c.HostUsers = "rootless, "+r.opts.Cgroups.Mode().String(), 1
	}
	return c
}

// notEnforced names the limits that hold for nobody here. The number of
// processes is not among them: gVisor's kernel counts them whatever the host
// can do. So is the size of the disk.
func (r *Runtime) notEnforced() []string {
	return slices.DeleteFunc(r.opts.Cgroups.NotEnforced(), func(l string) bool { return l == sandbox.LimitPids })
}

// List implements runtime.Runtime.
func (r *Runtime) List(ctx context.Context) ([]runtime.Info, error) {
	r.mu.Lock()
	all := make([]*box, 0, len(r.boxes))
	for _, b := range r.boxes {
		all = append(all, b)
	}
	r.mu.Unlock()
	infos := make([]runtime.Info, 0, len(all))
	for _, b := range all {
		infos = append(infos, b.info())
	}
	slices.SortFunc(infos, func(a, b runtime.Info) int { return strings.Compare(a.ID, b.ID) })
	return infos, nil
}

// Attach implements runtime.Runtime.
func (r *Runtime) Attach(ctx context.Context, id string) (net.Conn, error) {
	b, err := r.find(id)
	if err != nil {
		return nil, fmt.Errorf("attach to sandbox: %w", err)
	}
	b.hand.Lock()
	defer b.hand.Unlock()
	b.mu.RLock()
	defer b.mu.RUnlock()
	conn, err := b.attach(ctx)
	if err != nil {
		return nil, fmt.Errorf("attach to sandbox %s: %w", ids.Short(id), err)
	}
	return conn, nil
}

// Watch implements runtime.Runtime.
func (r *Runtime) Watch(ctx context.Context) <-chan runtime.Event { return r.events.Watch(ctx) }

// Close implements runtime.Runtime.
func (r *Runtime) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	all := r.boxes
	r.boxes = nil
	r.mu.Unlock()
	for _, b := range all {
		b.mu.Lock()
		b.letGo()
		b.mu.Unlock()
	}
	r.events.Close()
	return nil
}

func (r *Runtime) find(id string) (*box, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.boxes[id]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("no sandbox %q: %w", id, errdefs.ErrNotFound)
}

// add makes room for a new sandbox: its box, locked, and its directory.
func (r *Runtime) add(b *box) error {
	if !ids.IsUID(b.rec.ID) {
		return fmt.Errorf("id %q is not 64 hex digits: %w", b.rec.ID, errdefs.ErrInvalidArgument)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("the back end is closed: %w", errdefs.ErrUnavailable)
	}
	if _, ok := r.boxes[b.rec.ID]; ok {
		return fmt.Errorf("sandbox %s: %w", ids.Short(b.rec.ID), errdefs.ErrAlreadyExists)
	}
	err := os.Mkdir(r.boxDir(b.rec.ID), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("sandbox %s: %w", ids.Short(b.rec.ID), errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	b.mu.Lock()
	r.boxes[b.rec.ID] = b
	return nil
}

func (r *Runtime) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.boxes, id)
}
