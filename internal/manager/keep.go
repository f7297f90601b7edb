package manager

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/live"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// What becomes of sandboxes that failed and are kept (Sandbox.KeepFailed): whoever
// looks for one finds it in the state error, with the reason. All that it used is
// free again but its volumes, which it holds until it is destroyed: by somebody, or
// after KeepStopped.

// lose ends a sandbox that ended by itself while l was its session, nil for none.
func (m *Manager) lose(ctx context.Context, b *box, l *live.Box, why doom) error {
	if !b.snapshot().KeepFailed {
		return m.destroyNow(ctx, b, why)
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.isGone() || b.why().reason != "" || b.running() != l || b.status() == sandbox.Stopped {
		return nil // somebody destroys it, or was faster: it is stopped, or runs again
	}
	return m.loseNow(ctx, b, why)
}

// loseNow is lose for the holder of b.op.
func (m *Manager) loseNow(ctx context.Context, b *box, why doom) error {
	if !b.snapshot().KeepFailed {
		return m.finish(ctx, b, why)
	}
	if err := m.transition(ctx, b, sandbox.Failed, why, nil); err != nil {
		return err
	}
	return m.free(ctx, b, why)
}

// free gives back what a failed sandbox used. It may be repeated.
func (m *Manager) free(ctx context.Context, b *box, why doom) error {
	if l := m.halt(b); l != nil {
		l.End(why.reason, why.text)
	}
	if err := m.opts.Runtime.Destroy(ctx, b.uid()); err != nil {
		return fmt.Errorf("remove what is left of a sandbox: %w", err)
	}
	b.releaseImage()
	return nil
}

// freeFailed does what the last manager may not have come to.
func (m *Manager) freeFailed(ctx context.Context, b *box, info runtime.Info) error {
	sb := b.snapshot()
	if !sb.KeepFailed || info.ID == "" {
		return nil
	}
	return m.free(ctx, b, doom{sb.Reason, sb.ReasonText})
}

// keepUnmade keeps a sandbox that agentbox could not make, if it is to be kept. One
// that its caller asked for wrongly, or let go of, leaves nothing. The caller holds
// b.op.
func (m *Manager) keepUnmade(ctx context.Context, b *box, err error) bool {
	if !b.snapshot().KeepFailed || b.why().reason != "" || ctx.Err() != nil || hasClass(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	why := doom{sandbox.ReasonFailure, unmade}
	if left := errors.Join(m.free(ctx, b, why), m.releaseMade(ctx, b)); left != nil {
		return false // the usual way, which is tried again
	}
	left := m.transition(ctx, b, sandbox.Failed, why, func(sb *sandbox.Sandbox) { sb.Volumes, sb.Storage = nil, false })
	return left == nil
}

// unmade is what the owner is told: more would be of the host. The door that asked has
// it in the log.
const unmade = "it could not be made; the server's log says why"

// releaseMade ends the use of volumes by a sandbox that could not be made.
func (m *Manager) releaseMade(ctx context.Context, b *box) error {
	if m.opts.Volumes == nil {
		return nil
	}
	sb := b.snapshot()
	var errs []error
	for _, v := range sb.Volumes {
		errs = append(errs, m.opts.Volumes.Release(ctx, sb.Owner, v.Name, sb.UID))
	}
	if sb.Storage {
		m.opts.Volumes.ReleaseTenant(sb.Owner, sb.Tenant, sb.UID)
	}
	return errors.Join(append(errs, m.dropVolumes(ctx, &sb, true))...)
}

// hasClass reports an error that is not agentbox's fault.
func hasClass(err error) bool {
	for _, is := range []func(error) bool{
		errdefs.IsInvalidArgument, errdefs.IsNotFound, errdefs.IsAlreadyExists, errdefs.IsFailedPrecondition, errdefs.IsConflict,
		errdefs.IsNotImplemented, errdefs.IsResourceExhausted, errdefs.IsUnavailable, errdefs.IsCanceled,
	} {
		if is(err) {
			return true
		}
	}
	return false
}
