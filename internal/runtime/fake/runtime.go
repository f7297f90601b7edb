package fake

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Runtime is the fake back end as one process sees it.
type Runtime struct {
	host   *Host
	events *runtime.Events
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Resizer = (*Runtime)(nil)
)

// Capabilities implements runtime.Runtime.
func (r *Runtime) Capabilities() runtime.Capabilities {
	return runtime.Capabilities{
		Name: "fake", Version: "1", Mode: "in memory", NotEnforced: slices.Clone(r.host.opts.NotEnforced), Stop: true,
	}
}

// Create implements runtime.Runtime.
func (r *Runtime) Create(ctx context.Context, spec runtime.Spec) error {
	if err := r.check(ctx, spec); err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	if err := r.host.add(newBox(r.host, spec)); err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	return nil
}

func (r *Runtime) check(ctx context.Context, spec runtime.Spec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !ids.IsUID(spec.ID) {
		return fmt.Errorf("id %q is not 64 hex digits: %w", spec.ID, errdefs.ErrInvalidArgument)
	}
	for _, l := range spec.Require {
		if !slices.Contains([]string{sandbox.LimitMemory, sandbox.LimitCPUs, sandbox.LimitPids, sandbox.LimitDisk}, l) {
			return fmt.Errorf("there is no limit %q: %w", l, errdefs.ErrInvalidArgument)
		}
		if slices.Contains(r.host.opts.NotEnforced, l) {
			return fmt.Errorf("the limit of %s can't be enforced: %w", l, errdefs.ErrFailedPrecondition)
		}
	}
	return runtime.CheckMounts(spec.Mounts, uint32(os.Getuid()), uint32(os.Getgid()))
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, id string) error {
	return r.with(ctx, "start", id, func(b *box) error {
		if b.info.State != sandbox.Created {
			if b.saved == nil || b.info.State != sandbox.Stopped && b.info.State != sandbox.Failed {
				return b.wrongState()
			}
			if err := r.check(ctx, b.spec); err != nil {
				return err
			}
			b.disk, b.key = b.saved.Clone(), guest.NewKey()
		}
		b.machine = newMachine(b)
		b.info.State, b.info.Reason = sandbox.Live, sandbox.ReasonNone
		return nil
	})
}

// Attach implements runtime.Runtime.
func (r *Runtime) Attach(ctx context.Context, id string) (conn net.Conn, err error) {
	err = r.with(ctx, "attach to", id, func(b *box) error {
		if b.info.State != sandbox.Live {
			return b.wrongState()
		}
		conn, err = b.machine.attach(ctx, b.key)
		return err
	})
	return conn, err
}

// Stop implements runtime.Runtime.
func (r *Runtime) Stop(ctx context.Context, id string) error {
	return r.with(ctx, "stop", id, func(b *box) error {
		if b.info.State != sandbox.Live {
			return b.wrongState()
		}
		b.halt()
		b.saved, b.disk = b.disk, nil
		b.info.State, b.info.Saved = sandbox.Stopped, time.Now()
		return nil
	})
}

// Resize implements runtime.Resizer.
func (r *Runtime) Resize(ctx context.Context, id string, l sandbox.Limits) error {
	return r.with(ctx, "resize", id, func(b *box) error {
		if err := b.info.Limits.CheckResize(l); err != nil {
			return err
		}
		if b.info.State != sandbox.Live && b.info.State != sandbox.Stopped {
			return b.wrongState()
		}
		b.info.Limits, b.spec.Limits = l, l
		if b.machine != nil {
			b.machine.sys.SetMaxProcs(l.Pids)
		}
		return nil
	})
}

// Destroy implements runtime.Runtime.
func (r *Runtime) Destroy(ctx context.Context, id string) error {
	err := r.with(ctx, "destroy", id, func(b *box) error {
		b.halt()
		b.gone = true
		r.host.remove(id)
		return nil
	})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// with runs f on a sandbox while nothing else happens to it.
func (r *Runtime) with(ctx context.Context, verb, id string, f func(*box) error) error {
	b, err := r.host.find(id)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.gone:
			err = notFound(id)
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = f(b)
		}
	}
	if err != nil {
		return fmt.Errorf("%s sandbox: %w", verb, err)
	}
	return nil
}

// List implements runtime.Runtime.
func (r *Runtime) List(ctx context.Context) ([]runtime.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var all []runtime.Info
	for _, b := range r.host.all() {
		b.mu.Lock()
		if !b.gone {
			i := b.info
			i.Labels = maps.Clone(i.Labels)
			all = append(all, i)
		}
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b runtime.Info) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Watch implements runtime.Runtime.
func (r *Runtime) Watch(ctx context.Context) <-chan runtime.Event { return r.events.Watch(ctx) }

// Close implements runtime.Runtime.
func (r *Runtime) Close() error {
	r.host.leave(r)
	r.events.Close()
	return nil
}

func notFound(id string) error { return fmt.Errorf("no sandbox %q: %w", id, errdefs.ErrNotFound) }

func newBox(h *Host, spec runtime.Spec) *box {
	return &box{
		spec: spec,
		info: runtime.Info{
			ID: spec.ID, State: sandbox.Created, Created: time.Now(), Labels: maps.Clone(spec.Labels),
			Limits: spec.Limits, NotEnforced: slices.Clone(h.opts.NotEnforced),
		},
	}
}
