package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// Volumes is the storage that outlives sandboxes; *volume.Volumes has it. Who
// acquires may do so again.
type Volumes interface {
	Acquire(ctx context.Context, owner, name, holder string, readOnly bool) (volume.Mount, error)
	Release(ctx context.Context, owner, name, holder string) error
	// Tenants reports whether storage of tenants is kept.
	Tenants() bool
	AcquireTenant(ctx context.Context, owner, tenant, holder string) (volume.Storage, error)
	ReleaseTenant(owner, tenant, holder string)
	RemoveTenant(ctx context.Context, owner, tenant string) error
	// CreateAs makes a volume, or finds the one that was made with the same id;
	// Get finds one, Remove removes one that nobody uses.
	CreateAs(ctx context.Context, id, owner, name string, size int64) (sandbox.Volume, error)
	Get(ctx context.Context, owner, name string) (sandbox.Volume, error)
	Remove(ctx context.Context, owner, name string) error
}

// Holds are the volumes and storage that recorded sandboxes use, for who opens
// them before there is a manager. What was half made, or was about to go, holds
// nothing: it runs no more when the manager is there.
func Holds(all []sandbox.Sandbox) []volume.Hold {
	var holds []volume.Hold
	for _, sb := range all {
		if sb.Status == sandbox.Creating || sb.Status == sandbox.Destroying {
			continue
		}
		for _, v := range sb.Volumes {
			holds = append(holds, volume.Hold{Owner: sb.Owner, Volume: v.Name, Holder: sb.UID, ReadOnly: v.ReadOnly})
		}
		if sb.Storage {
			holds = append(holds, volume.Hold{Owner: sb.Owner, Tenant: sb.Tenant, Holder: sb.UID})
		}
	}
	return holds
}

// TenantStorage reports whether sandboxes with a tenant have its storage.
func (m *Manager) TenantStorage() bool { return m.opts.Volumes != nil && m.opts.Volumes.Tenants() }

// acquire makes what outlives a sandbox usable for it. What was acquired before
// an error is released when the sandbox is removed. unbounded are limits that the
// host can't hold it to.
func (m *Manager) acquire(ctx context.Context, sb *sandbox.Sandbox) (mounts []runtime.Mount, unbounded []string, err error) {
	for _, v := range sb.Volumes {
		got, err := m.opts.Volumes.Acquire(ctx, sb.Owner, v.Name, sb.UID, v.ReadOnly)
		if errdefs.IsNotFound(err) {
			return nil, nil, &sandbox.InvalidError{Field: "volumes", Value: v.Name, Allowed: "a volume that you have made"}
		}
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, runtime.Mount{Source: got.Path, Path: v.Path, ReadOnly: v.ReadOnly})
		if len(got.NotEnforced) > 0 && !slices.Contains(unbounded, sandbox.LimitVolumes) {
			unbounded = append(unbounded, sandbox.LimitVolumes)
		}
	}
	if !sb.Storage {
		return mounts, unbounded, nil
	}
	got, err := m.opts.Volumes.AcquireTenant(ctx, sb.Owner, sb.Tenant, sb.UID)
	if err != nil {
		return nil, nil, err
	}
	if len(got.NotEnforced) > 0 {
		unbounded = append(unbounded, sandbox.LimitStorage)
	}
	mounts = append(mounts,
		runtime.Mount{Source: got.Workspace, Path: sandbox.WorkspacePath},
		runtime.Mount{Source: got.Outputs, Path: sandbox.OutputsPath})
	return mounts, unbounded, nil
}

// holdStorage goes on with the use of what outlives a sandbox that was there
// before. [Holds] has given it back already, unless the store did not know of the
// sandbox, whose record then does not say either what it can't be held to. One that
// runs goes on without it, too: it has its files open.
func (m *Manager) holdStorage(ctx context.Context, b *box) {
	sb := b.snapshot()
	if m.opts.Volumes == nil {
		return
	}
	_, unbounded, err := m.acquire(ctx, &sb)
	known := len(sb.NotEnforced)
	for _, limit := range unbounded {
		if !slices.Contains(sb.NotEnforced, limit) {
			sb.NotEnforced = append(sb.NotEnforced, limit)
		}
	}
	if len(sb.NotEnforced) > known {
		err = m.save(ctx, b, sb, nil)
	}
	if err != nil {
		m.log.Error("hold the volumes of a sandbox", "sandbox", sb.Short, "error", err)
	}
}

// releaseStorage ends a sandbox's use of what outlives it, and removes its
// tenant's storage if that was asked for. The sandbox must be gone from the back
// end. It may be repeated.
func (m *Manager) releaseStorage(ctx context.Context, b *box) error {
	if m.opts.Volumes == nil {
		return nil
	}
	sb := b.snapshot()
	b.noteDrop(&sb) // a full disk may have kept it out of the record
	var errs []error
	for _, v := range sb.Volumes {
		errs = append(errs, m.opts.Volumes.Release(ctx, sb.Owner, v.Name, sb.UID))
	}
	if sb.Storage {
		m.opts.Volumes.ReleaseTenant(sb.Owner, sb.Tenant, sb.UID)
	}
	errs = append(errs, m.dropVolumes(ctx, &sb, b.why().reason == sandbox.ReasonUnmade))
	if sb.Storage && sb.DropStorage {
		errs = append(errs, m.removeStorage(ctx, &sb))
	}
	return errors.Join(errs...)
}

// removeStorage removes the storage of a sandbox's tenant. That it can't be removed
// by now is no reason for the sandbox to stay.
func (m *Manager) removeStorage(ctx context.Context, sb *sandbox.Sandbox) error {
	if !m.TenantStorage() { // it was when that was asked for
		m.log.Warn("a tenant's storage stays, because none is configured", "sandbox", sb.Short, "tenant", sb.Tenant)
		return nil
	}
	err := m.opts.Volumes.RemoveTenant(ctx, sb.Owner, sb.Tenant)
	var held *sandbox.VolumeHeldError
	if errors.As(err, &held) { // somebody came meanwhile
		m.log.Warn("a tenant's storage stays, because it is used", "sandbox", sb.Short, "tenant", sb.Tenant, "by", held.Holder)
		return nil
	}
	return err
}

// DestroyWithStorage ends a sandbox as Destroy does, and removes its tenant's
// storage with all that is in it. While another sandbox has that storage it is a
// [sandbox.VolumeHeldError], on a server that keeps none by now FailedPrecondition,
// and nothing is done.
func (m *Manager) DestroyWithStorage(ctx context.Context, c sandbox.Caller, id string) error {
	b, err := m.find(ctx, c, id)
	if err == nil {
		err = m.dropStorage(b)
	}
	if err == nil {
		err = m.destroy(ctx, b, "")
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox and its storage: %w", err)
	}
	return nil
}

// noteDrop writes that decision into a record.
func (b *box) noteDrop(sb *sandbox.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sb.DropStorage = sb.DropStorage || b.dropStorage
	for _, name := range b.dropVolumes {
		if !slices.Contains(sb.DropVolumes, name) {
			sb.DropVolumes = append(slices.Clone(sb.DropVolumes), name)
		}
	}
}

// dropStorage decides that the storage is to go with the sandbox, if it can.
func (m *Manager) dropStorage(b *box) error {
	sb := b.snapshot()
	if !sb.Storage {
		return &sandbox.InvalidError{Field: "remove_storage", Value: "true", Allowed: "false for a sandbox without a tenant's storage"}
	}
	if !m.TenantStorage() {
		return sandbox.Refuse(errdefs.ErrFailedPrecondition, "The server keeps no storage of tenants any more, and can't remove it; the sandbox can be destroyed without")
	}
	for _, other := range m.index.all() {
		o := other.snapshot()
		if o.UID != sb.UID && o.Owner == sb.Owner && o.Storage && o.Tenant == sb.Tenant {
			return &sandbox.VolumeHeldError{Volume: sb.Tenant, Holder: o.UID, Write: true}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropStorage = true
	return nil
}
