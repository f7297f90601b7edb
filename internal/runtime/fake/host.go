package fake

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake/toyos"
	"agentbox/internal/sandbox"
)

// Options of [NewHost].
type Options struct {
	// NotEnforced names limits that this host pretends not to enforce.
	NotEnforced []string
}

// Host is the machine that the sandboxes are on.
type Host struct {
	opts Options

	mu       sync.Mutex
	boxes    map[string]*box
	runtimes map[*Runtime]struct{}
	// volumes are the files in directories of the host, by their path: the fake
	// keeps them in memory and touches no real ones.
	volumes map[string]*toyos.Disk
}

// NewHost makes a machine without sandboxes.
func NewHost(o Options) *Host {
	return &Host{opts: o, boxes: map[string]*box{}, runtimes: map[*Runtime]struct{}{}, volumes: map[string]*toyos.Disk{}}
}

// Open opens the back end, as a new process of the daemon does.
func (h *Host) Open() *Runtime {
	r := &Runtime{host: h, events: new(runtime.Events)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runtimes[r] = struct{}{}
	return r
}

func (h *Host) leave(r *Runtime) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runtimes, r)
}

// Kill ends a running sandbox from outside, for the given reason, as the
// kernel's OOM killer or a crash would. Watchers are told; the sandbox stays in
// List as failed.
func (h *Host) Kill(id string, reason sandbox.Reason, detail string) error {
	b, err := h.find(id)
	if err != nil {
		return fmt.Errorf("kill sandbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.info.State != sandbox.Live && b.info.State != sandbox.Created {
		return fmt.Errorf("kill sandbox: %w", b.wrongState())
	}
	b.halt()
	b.info.State, b.info.Reason = sandbox.Failed, reason
	ev := runtime.Event{ID: id, Reason: reason, ExitCode: -1, Detail: detail, Time: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.runtimes {
		r.events.Publish(ev)
	}
	return nil
}

// Close destroys all sandboxes.
func (h *Host) Close() {
	for _, b := range h.all() {
		b.mu.Lock()
		b.halt()
		b.gone = true
		h.remove(b.spec.ID)
		b.mu.Unlock()
	}
}

func (h *Host) add(b *box) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.boxes[b.spec.ID]; ok {
		return fmt.Errorf("sandbox %s: %w", ids.Short(b.spec.ID), errdefs.ErrAlreadyExists)
	}
	b.disk, b.key = toyos.NewDisk(b.spec.Limits.Disk), guest.NewKey()
	for _, m := range b.spec.Mounts {
		if h.volumes[m.Source] == nil {
			h.volumes[m.Source] = toyos.NewVolume()
		}
		b.disk.Mount(m.Path, h.volumes[m.Source], m.ReadOnly)
	}
	h.boxes[b.spec.ID] = b
	return nil
}

func (h *Host) find(id string) (*box, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b, ok := h.boxes[id]; ok {
		return b, nil
	}
	return nil, notFound(id)
}

func (h *Host) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, id)
}

func (h *Host) all() []*box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.boxes))
}
