//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// mode is how somebody uses a volume.
type mode int

const (
	reads  mode = iota // with other readers
	writes             // alone
	shares             // writes, with others who do so
	looks              // reads besides whoever is there
)

// with reports whether two may be there at once.
func (m mode) with(other mode) bool {
	return m == looks || other == looks || m == other && m != writes
}

func (m mode) mayWrite() bool { return m == writes || m == shares }

// use is who uses a volume or a tenant's storage. Its lock is held while the
// volume is mounted, unmounted or removed.
type use struct {
	mu   sync.Mutex
	by   map[string]mode // by holder
	gone bool            // removed; whoever waited for mu must look again
}

// conflict is the error for one who comes while others are there, or nil.
func (u *use) conflict(name, holder string, m mode) error {
	for who, have := range u.by {
		if who == holder && have == m || m.with(have) {
			continue
		}
		return &sandbox.VolumeHeldError{Volume: name, Holder: who, Write: have.mayWrite()}
	}
	return nil
}

// any returns the error for one who needs that nobody is there.
func (u *use) any(name string) error {
	for who, have := range u.by {
		return &sandbox.VolumeHeldError{Volume: name, Holder: who, Write: have.mayWrite()}
	}
	return nil
}

// lock returns the use of a volume or storage, locked.
func (v *Volumes) lock(id string) *use {
	for {
		v.mu.Lock()
		u := v.uses[id]
		if u == nil {
			u = &use{by: map[string]mode{}}
			v.uses[id] = u
		}
		v.mu.Unlock()
		u.mu.Lock()
		if !u.gone {
			return u
		}
		u.mu.Unlock()
	}
}

// unlock ends a lock; a use that nobody has is forgotten.
func (v *Volumes) unlock(id string, u *use) {
	if len(u.by) == 0 {
		u.gone = true
		v.mu.Lock()
		delete(v.uses, id)
		v.mu.Unlock()
	}
	u.mu.Unlock()
}

// Acquire makes a volume usable for holder, a sandbox's id: to write if nobody
// else uses it, to read if nobody else writes. It may be repeated. The error is
// a [sandbox.VolumeHeldError] if others are in the way, NotFound if the owner
// has no such volume.
func (v *Volumes) Acquire(ctx context.Context, owner, name, holder string, readOnly bool) (Mount, error) {
	m := writes
	if readOnly {
		m = reads
	}
	vol, path, err := v.take(ctx, owner, name, holder, m)
	if err != nil {
		return Mount{}, fmt.Errorf("use volume %q: %w", name, err)
	}
	return Mount{Path: path, ReadOnly: readOnly, NotEnforced: vol.NotEnforced}, nil
}

// take adds a holder to a volume and opens its tree.
func (v *Volumes) take(ctx context.Context, owner, name, holder string, m mode) (sandbox.Volume, string, error) {
	vol, u, err := v.ready(ctx, owner, name)
	if err != nil {
		return vol, "", err
	}
	defer v.unlock(vol.ID, u)
	if err := u.conflict(name, holder, m); err != nil {
		return vol, "", err
	}
	path, err := v.backing(vol.Kind).open(v.path(vol.ID))
	if err != nil {
		return vol, "", err
	}
	u.by[holder] = m
	return vol, path, nil
}

// ready finds a volume that can be used, and locks its use.
func (v *Volumes) ready(ctx context.Context, owner, name string) (sandbox.Volume, *use, error) {
	vol, err := v.find(ctx, owner, name)
	if err != nil {
		return vol, nil, err
	}
	u := v.lock(vol.ID)
	// It may have been removed, and made again, while we waited.
	now, err := v.find(ctx, owner, name)
	if err == nil && now.ID != vol.ID {
		err = notFound(name)
	}
	if err != nil {
		v.unlock(vol.ID, u)
		return vol, nil, err
	}
	return now, u, nil
}

// find finds a volume that can be used.
func (v *Volumes) find(ctx context.Context, owner, name string) (sandbox.Volume, error) {
	if err := errors.Join(sandbox.CheckOwner(owner), sandbox.CheckVolumeName(name)); err != nil {
		return sandbox.Volume{}, err
	}
	vol, err := v.opts.Records.Volume(ctx, owner, name)
	if errdefs.IsNotFound(err) || err == nil && vol.State != sandbox.VolumeReady {
		return vol, notFound(name)
	}
	return vol, err
}

func notFound(name string) error {
	return fmt.Errorf("there is no volume %q: %w", name, errdefs.ErrNotFound)
}

// Release ends holder's use of a volume, if there is any. The sandbox must have
// ended. When it fails the volume stays held, and Release may be repeated.
func (v *Volumes) Release(ctx context.Context, owner, name, holder string) error {
	vol, u, err := v.ready(ctx, owner, name)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release volume %q: %w", name, err)
	}
	defer v.unlock(vol.ID, u)
	if err := v.drop(vol, u, holder); err != nil {
		return fmt.Errorf("release volume %q: %w", name, err)
	}
	return nil
}

func (v *Volumes) drop(vol sandbox.Volume, u *use, holder string) error {
	if _, has := u.by[holder]; !has {
		return nil
	}
	if len(u.by) == 1 {
		if err := v.backing(vol.Kind).close(v.path(vol.ID)); err != nil {
			return err
		}
	}
	delete(u.by, holder)
	return nil
}

// Holders lists the sandboxes that use a volume, sorted.
func (v *Volumes) Holders(ctx context.Context, owner, name string) ([]string, error) {
	vol, u, err := v.ready(ctx, owner, name)
	if err != nil {
		return nil, fmt.Errorf("inspect volume %q: %w", name, err)
	}
	defer v.unlock(vol.ID, u)
	return u.holders(), nil
}

func (u *use) holders() []string {
	all := []string{}
	for who := range u.by {
		if !strings.HasPrefix(who, archiver) {
			all = append(all, who)
		}
	}
	slices.Sort(all)
	return all
}
