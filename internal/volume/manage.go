//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// idBytes of a volume's id are random.
const idBytes = 16

// Create makes an empty volume of size bytes (0: Options.Size). When it fails
// nothing is left but, if the host fails too, a record that Remove or the next
// Open takes away. AlreadyExists: the owner has one of that name. A
// [sandbox.LimitError]: the owner has as many, or as large ones, as allowed.
// ResourceExhausted: the disk is full. NotImplemented: a size was asked for that
// the host can't hold the volume to; without one, NotEnforced says so.
func (v *Volumes) Create(ctx context.Context, owner, name string, size int64) (sandbox.Volume, error) {
	return v.CreateAs(ctx, ids.Hex(idBytes), owner, name, size)
}

// CreateAs is Create with an id, 32 hex digits, of the caller's. A volume of that id
// and name which is there was made by the same request before, and is returned.
func (v *Volumes) CreateAs(ctx context.Context, id, owner, name string, size int64) (sandbox.Volume, error) {
	vol, err := v.newVolume(id, owner, name, size)
	if err != nil {
		return vol, fmt.Errorf("create volume %.128q: %w", name, err)
	}
	u := v.lock(vol.ID)
	defer v.unlock(vol.ID, u)
	if before, err := v.find(ctx, owner, name); err == nil && before.ID == id {
		return before, nil
	}
	err = v.add(ctx, vol)
	if err == nil {
		err = v.make(ctx, &vol)
	}
	if err != nil {
		return sandbox.Volume{}, fmt.Errorf("create volume %q: %w", name, err)
	}
	return vol, nil
}

func (v *Volumes) newVolume(id, owner, name string, size int64) (sandbox.Volume, error) {
	if !isID(id) {
		return sandbox.Volume{}, &sandbox.InvalidError{Field: "id", Value: fmt.Sprintf("%.64q", id), Allowed: fmt.Sprintf("%d hex digits", 2*idBytes)}
	}
	if err := errors.Join(sandbox.CheckOwner(owner), sandbox.CheckVolumeName(name)); err != nil {
		return sandbox.Volume{}, err
	}
	asked := size != 0
	if !asked {
		size = v.opts.Size
	}
	if size < MinSize || size > v.opts.MaxSize {
		return sandbox.Volume{}, &sandbox.InvalidError{Field: "size", Value: sandbox.FormatSize(size), Allowed: sandbox.FormatSize(MinSize) + " to " + sandbox.FormatSize(v.opts.MaxSize)}
	}
	c := v.kinds()
	vol := sandbox.Volume{
		ID: id, Owner: owner, Name: name, Size: size,
		Kind: c.kind, State: sandbox.VolumeCreating, Created: time.Now().UTC(),
	}
	if vol.Kind == sandbox.VolumeDirectory {
		if asked {
			return sandbox.Volume{}, sandbox.Refuse(errdefs.ErrNotImplemented, "volumes can't be limited in size on this server (agentbox doctor says why): leave size out")
		}
		vol.NotEnforced = []string{sandbox.LimitDisk}
	}
	return vol, nil
}

// add writes the record, which reserves the name.
func (v *Volumes) add(ctx context.Context, vol sandbox.Volume) error {
	v.adds.Lock()
	defer v.adds.Unlock()
	if err := v.opts.Records.AddVolume(ctx, vol); err != nil {
		return err
	}
	if err := v.quotaFor(ctx, vol.Owner); err != nil {
		return errors.Join(err, v.opts.Records.DeleteVolume(context.WithoutCancel(ctx), vol.ID))
	}
	return nil
}

// quotaFor reports an owner who has more than allowed.
func (v *Volumes) quotaFor(ctx context.Context, owner string) error {
	all, err := v.opts.Records.Volumes(ctx, owner)
	if err != nil {
		return err
	}
	var sum int64
	for _, vol := range all {
		sum += vol.Size
	}
	switch {
	case len(all) > v.opts.PerOwner:
		return &sandbox.LimitError{Quota: true, Text: fmt.Sprintf("Maximum number of volumes (%d) reached", v.opts.PerOwner), RetryAfter: quotaPatience}
	case sum > v.opts.OwnerBytes:
		return &sandbox.LimitError{
			Quota:      true,
			Text:       fmt.Sprintf("All volumes together may have %s; with this one they would have %s", sandbox.FormatSize(v.opts.OwnerBytes), sandbox.FormatSize(sum)),
			RetryAfter: quotaPatience,
		}
	}
	return nil
}

// quotaPatience is when it makes sense to ask again: volumes go when somebody
// removes them.
const quotaPatience = time.Minute

// make makes what the record announces.
func (v *Volumes) make(ctx context.Context, vol *sandbox.Volume) error {
	dir := v.path(vol.ID)
	err := v.room()
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = makeGate(dir, v.opts.GID)
	}
	if err == nil {
		err = v.backing(vol.Kind).create(ctx, dir, vol.Size)
	}
	if err == nil {
		err = v.dir.Sync()
	}
	if err == nil {
		err = v.opts.Records.SetVolumeState(ctx, vol.ID, sandbox.VolumeReady)
	}
	if err != nil {
		return errors.Join(classify(err), v.erase(context.WithoutCancel(ctx), *vol))
	}
	vol.State = sandbox.VolumeReady
	return nil
}

// room reports a disk that is as good as full: an image's tables and its first
// files would not fit.
func (v *Volumes) room() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(v.dir.Fd()), &fs); err != nil {
		return fmt.Errorf("look for room on the disk: %w", err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < MinSize {
		return fmt.Errorf("the disk has %d bytes left: %w", free, errdefs.ErrResourceExhausted)
	}
	return nil
}

// Get finds an owner's volume.
func (v *Volumes) Get(ctx context.Context, owner, name string) (sandbox.Volume, error) {
	vol, err := v.find(ctx, owner, name)
	if err != nil {
		return sandbox.Volume{}, fmt.Errorf("find volume %.128q: %w", name, err)
	}
	return vol, nil
}

// List lists an owner's volumes by name.
func (v *Volumes) List(ctx context.Context, owner string) ([]sandbox.Volume, error) {
	if err := sandbox.CheckOwner(owner); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	all, err := v.opts.Records.Volumes(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	ready := []sandbox.Volume{}
	for _, vol := range all {
		if vol.State == sandbox.VolumeReady {
			ready = append(ready, vol)
		}
	}
	return ready, nil
}

// Inspect looks at a volume. A plain directory is gone through, which takes as
// long as there are files in it, or until ctx ends.
func (v *Volumes) Inspect(ctx context.Context, owner, name string) (Info, error) {
	vol, u, err := v.ready(ctx, owner, name)
	if err != nil {
		return Info{}, fmt.Errorf("inspect volume %.128q: %w", name, err)
	}
	info := Info{Volume: vol, Holders: u.holders()}
	v.unlock(vol.ID, u)
	info.Used, err = v.backing(vol.Kind).used(ctx, v.path(vol.ID))
	if errors.Is(err, fs.ErrNotExist) {
		err = notFound(name) // removed meanwhile
	}
	if err != nil {
		return Info{}, fmt.Errorf("inspect volume %q: %w", name, err)
	}
	return info, nil
}

// Remove removes a volume and all that is in it. A volume that somebody uses is
// not removed: a [sandbox.VolumeHeldError]. Remove may be repeated after it
// failed; the volume can't be used any more then.
func (v *Volumes) Remove(ctx context.Context, owner, name string) error {
	err := errors.Join(sandbox.CheckOwner(owner), sandbox.CheckVolumeName(name))
	var vol sandbox.Volume
	if err == nil {
		vol, err = v.opts.Records.Volume(ctx, owner, name)
	}
	switch {
	case errdefs.IsNotFound(err):
		err = notFound(name)
	case err == nil:
		u := v.lock(vol.ID)
		defer v.unlock(vol.ID, u)
		if err = u.any(name); err == nil {
			err = v.erase(ctx, vol)
		}
	}
	if err != nil {
		return fmt.Errorf("remove volume %.128q: %w", name, err)
	}
	return nil
}

// erase removes a volume from whatever state it is in. Its use must be locked,
// and nobody may have it.
func (v *Volumes) erase(ctx context.Context, vol sandbox.Volume) error {
	err := v.opts.Records.SetVolumeState(ctx, vol.ID, sandbox.VolumeRemoving)
	if errdefs.IsNotFound(err) {
		return nil // somebody else did it while we waited
	}
	if err != nil {
		return err
	}
	b, dir := v.backing(vol.Kind), v.path(vol.ID)
	if err := b.close(dir); err != nil {
		return err
	}
	if vol.Kind == sandbox.VolumeQuota {
		if err := v.dropQuota(vol.ID); err != nil {
			return err
		}
	}
	if err := removeTree(v.dir, vol.ID); err != nil {
		return err
	}
	return v.opts.Records.DeleteVolume(ctx, vol.ID)
}

func (v *Volumes) dropQuota(id string) error {
	f, err := openDir(v.dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return dropProject(f)
}
