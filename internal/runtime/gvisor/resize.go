package gvisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/cgroup"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Resize implements runtime.Resizer.
func (r *Runtime) Resize(ctx context.Context, id string, l sandbox.Limits) error {
	b, err := r.find(id)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		err = b.resize(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("resize sandbox %s: %w", ids.Short(id), err)
	}
	return nil
}

// resize changes the groups first: a process that dies in between leaves a
// record of the limits before, so that who asked sees to ask again.
func (b *box) resize(ctx context.Context, l sandbox.Limits) error {
	if err := errors.Join(ctx.Err(), b.rec.Limits.CheckResize(l)); err != nil {
		return err
	}
	before := b.rec.Limits
	if b.rec.State != sandbox.Stopped || b.gone {
		if err := b.must(sandbox.Live); err != nil {
			return err
		}
		if err := b.limit(l); err != nil {
			return errors.Join(err, b.limit(before))
		}
	}
	b.rec.Limits = l
	if err := b.rec.saveSynced(b.dir); err != nil {
		b.rec.Limits = before
		err = errors.Join(err, b.rec.save(b.dir)) // the failed one may be there
		if b.rec.State != sandbox.Stopped {
			err = errors.Join(err, b.limit(before))
		}
		return err
	}
	b.conf = forSandbox(b.r.conf, l, panicLog(b.dir)) // for its next start
	return nil
}

func (b *box) limit(l sandbox.Limits) error {
	err := b.group.SetLimits(cgroup.Limits{Memory: l.Memory, Pids: l.Pids})
	if errors.Is(err, cgroup.ErrInUse) {
		return sandbox.Refuse(errdefs.ErrFailedPrecondition, "the sandbox has more than %s of memory in use", sandbox.FormatSize(l.Memory))
	}
	if err != nil {
		return err
	}
	return b.group.SetCPUs(l.CPUs)
}
