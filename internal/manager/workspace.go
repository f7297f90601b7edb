package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// makeVolumes makes those that are to be made with a sandbox.
func (m *Manager) makeVolumes(ctx context.Context, sb *sandbox.Sandbox) error {
	for _, v := range sb.Volumes {
		if !v.Make {
			continue
		}
		if _, err := m.opts.Volumes.CreateAs(ctx, madeFor(sb.UID, v.Name), sb.Owner, v.Name, 0); err != nil {
			return fmt.Errorf("make a volume for the sandbox: %w", err)
		}
	}
	return nil
}

// madeFor is the id of a volume that is made with a sandbox: it tells it from another
// of the same name, whoever dies in between.
func madeFor(uid, name string) string {
	sum := sha256.Sum256([]byte(uid + " " + name))
	return hex.EncodeToString(sum[:16])
}

// dropVolumes removes the volumes that go with a sandbox which holds none any more:
// those that somebody wanted to go and, if it was never made, those that were made for
// it. One that somebody else has by now stays.
func (m *Manager) dropVolumes(ctx context.Context, sb *sandbox.Sandbox, unmade bool) error {
	names := sb.DropVolumes
	for _, v := range sb.Volumes {
		if !unmade || !v.Make {
			continue
		}
		if vol, err := m.opts.Volumes.Get(ctx, sb.Owner, v.Name); err == nil && vol.ID == madeFor(sb.UID, v.Name) {
			names = append(names[:len(names):len(names)], v.Name)
		}
	}
	var errs []error
	for _, name := range names {
		err := m.opts.Volumes.Remove(ctx, sb.Owner, name)
		var held *sandbox.VolumeHeldError
		switch {
		case errdefs.IsNotFound(err):
		case errors.As(err, &held):
			m.log.Warn("a volume stays, because it is used", "sandbox", sb.Short, "volume", name, "by", held.Holder)
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// DestroyWithVolume ends a sandbox as Destroy does, and removes one of its volumes
// with all that is in it. One that it does not have stays.
func (m *Manager) DestroyWithVolume(ctx context.Context, c sandbox.Caller, id, volume string) error {
	b, err := m.find(ctx, c, id)
	if err == nil {
		b.dropVolume(volume)
		err = m.destroy(ctx, b, "")
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox and a volume: %w", err)
	}
	return nil
}

// DestroyStopped is DestroyWithVolume for a sandbox that has been stopped since before
// a time. It reports whether it was: another one is left alone.
func (m *Manager) DestroyStopped(ctx context.Context, c sandbox.Caller, id string, before time.Time, volume string) (bool, error) {
	b, err := m.find(ctx, c, id)
	was := false
	if err == nil {
		err = m.detached(ctx, func(ctx context.Context) error {
			if err := b.lock(ctx); err != nil {
				return err
			}
			defer b.unlock()
			if sb := b.snapshot(); b.isGone() || sb.Status != sandbox.Stopped || sb.Stopped.After(before) {
				return nil
			}
			was = true
			b.dropVolume(volume)
			return m.finish(ctx, b, doom{reason: sandbox.ReasonDestroyed})
		})
	}
	if err != nil {
		return false, fmt.Errorf("destroy a stopped sandbox: %w", err)
	}
	return was, nil
}

// dropVolume decides that one of the sandbox's volumes goes with it.
func (b *box) dropVolume(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.rec.Volumes {
		if v.Name == name && !v.ReadOnly {
			b.dropVolumes = append(b.dropVolumes, name)
		}
	}
}
