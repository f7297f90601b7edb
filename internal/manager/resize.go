package manager

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// resizeTimeout bounds what a change of limits waits for the sandbox's agent. Only
// tests change it.
var resizeTimeout = 15 * time.Second

// applyLimits changes the limits of a record as far as the policy and the back
// end allow it.
func (m *Manager) applyLimits(rec *sandbox.Sandbox, asked sandbox.Limits) error {
	if asked == (sandbox.Limits{}) {
		return nil
	}
	if asked.Disk != 0 || asked.Shm != 0 || asked.Run != 0 || asked.OpenFiles != 0 {
		return sandbox.Refuse(errdefs.ErrNotImplemented, "only memory, cpus and pids of a sandbox that is there can be changed")
	}
	if _, ok := runtime.As[runtime.Resizer](m.opts.Runtime); !ok {
		return unsupported("changing limits")
	}
	if s := rec.Status; s != sandbox.Live && s != sandbox.Stopped {
		return &sandbox.StateError{Short: rec.Short, Status: s, Text: sandbox.NotRunning}
	}
	l := rec.Limits
	l.Memory, l.CPUs, l.Pids = cmp.Or(asked.Memory, l.Memory), cmp.Or(asked.CPUs, l.CPUs), cmp.Or(asked.Pids, l.Pids)
	if err := l.Check(m.policy.most(l, asked)); err != nil {
		return err
	}
	chosen := map[string]bool{sandbox.LimitMemory: asked.Memory != 0, sandbox.LimitCPUs: asked.CPUs != 0, sandbox.LimitPids: asked.Pids != 0}
	for _, name := range m.Capabilities().NotEnforced {
		if chosen[name] {
			return unsupported("a limit of " + name)
		}
	}
	for name, c := range chosen {
		if c && !slices.Contains(rec.Require, name) {
			rec.Require = append(rec.Require, name)
		}
	}
	if l.Memory > rec.Limits.Memory {
		if err := m.hasMemory(); err != nil {
			return err
		}
	}
	rec.Limits = l
	return nil
}

// most bounds limits of which some were asked for: what stays was allowed when it
// was given, though the maximum may be lower by now.
func (p *Policy) most(l, asked sandbox.Limits) sandbox.Limits {
	most := p.Max
	most.Disk, most.Shm, most.Run, most.OpenFiles = max(most.Disk, l.Disk), max(most.Shm, l.Shm), max(most.Run, l.Run), max(most.OpenFiles, l.OpenFiles)
	if asked.Memory == 0 {
		most.Memory = max(most.Memory, l.Memory)
	}
	if asked.CPUs == 0 {
		most.CPUs = max(most.CPUs, l.CPUs)
	}
	if asked.Pids == 0 {
		most.Pids = max(most.Pids, l.Pids)
	}
	return most
}

// resize lets the limits that are recorded hold, or those of before again. The
// caller holds b.op.
func (m *Manager) resize(ctx context.Context, b *box) error {
	r, ok := runtime.As[runtime.Resizer](m.opts.Runtime)
	if !ok {
		return unsupported("changing limits")
	}
	sb := b.snapshot()
	info, err := m.look(ctx, sb.UID)
	if err != nil {
		return err
	}
	if err := r.Resize(ctx, sb.UID, sb.Limits); err != nil {
		return err
	}
	err = m.inform(ctx, b)
	if errdefs.IsNotImplemented(err) && sb.Limits.Pids == info.Limits.Pids {
		err = nil // it only holds more output, or less, than it would
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), resizeTimeout)
		defer cancel()
		return errors.Join(err, r.Resize(undo, sb.UID, info.Limits))
	}
	return nil
}

// inform lets the agent know the limits that it keeps itself: how many processes
// there may be, and how much output it may hold. When it fails, the next session
// lets it know those that are recorded then.
func (m *Manager) inform(ctx context.Context, b *box) error {
	l := b.running()
	if l == nil || !connected(l) {
		return nil // it is told with the next session
	}
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	sb := b.snapshot()
	err := l.Reconfigure(ctx, m.config(&sb, m.wayOut(&sb)))
	if err != nil && !errdefs.IsNotImplemented(err) {
		_ = l.Session().Close() // the agent may have them, or take them later
	}
	return err
}
