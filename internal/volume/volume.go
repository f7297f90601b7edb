//go:build linux

package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"agentbox/internal/sandbox"
)

// Records keep what is known of volumes. A call that returns has made its change
// durable.
type Records interface {
	// AddVolume adds a volume; AlreadyExists if its owner has one of that name.
	AddVolume(ctx context.Context, v sandbox.Volume) error
	// SetVolumeState changes a volume's state; NotFound if there is none.
	SetVolumeState(ctx context.Context, id string, state sandbox.VolumeState) error
	// Volume finds a volume in any state; NotFound if there is none.
	Volume(ctx context.Context, owner, name string) (sandbox.Volume, error)
	// Volumes lists those of an owner, or all if owner is empty, in any state,
	// sorted by owner and name.
	Volumes(ctx context.Context, owner string) ([]sandbox.Volume, error)
	// DeleteVolume removes a record, if there is one.
	DeleteVolume(ctx context.Context, id string) error
}

// Options say where volumes are kept and what they may be.
type Options struct {
	// Dir holds the named volumes. It is made if needed, gets mode 0710 and the
	// group GID, and must be used by one process at a time.
	Dir string
	// Storage holds the storage of tenants, in the same way; empty: there is none.
	Storage string
	Records Records
	// UID and GID are the host's numbers of the guest's root, to whom new trees
	// belong; IDs is how many numbers from there are the guest's (0: 1). They are
	// ignored unless the process is root: all belongs to its own user then.
	UID, GID, IDs int
	// Size is that of a volume whose maker does not say, lowered to MaxSize. 0:
	// DefaultSize.
	Size int64
	// MaxSize bounds the size that a caller may ask for. 0: DefaultMaxSize.
	MaxSize int64
	// PerOwner bounds the volumes of one owner, OwnerBytes the sum of their sizes.
	// 0: DefaultPerOwner, DefaultOwnerBytes.
	PerOwner   int
	OwnerBytes int64
	// TenantSize limits each tenant's storage in bytes where there is a project
	// quota. 0: DefaultSize.
	TenantSize int64
	// Kind is how new volumes are kept. Empty: the first that works here of
	// VolumeImage, VolumeQuota and VolumeDirectory.
	Kind sandbox.VolumeKind
}

// Report says what [Open] found and did.
type Report struct {
	// Finished are volumes ("owner/name") that were half made or half removed,
	// and are gone now.
	Finished []string
	// Unmounted are ids of volumes that nobody held any more.
	Unmounted []string
	// Lost are holds that can't be had again, each with the reason.
	Lost []LostHold
	// Unknown are ids of directories without a record. They are left alone.
	Unknown []string
	// Failed are volumes that could not be brought in order, each with the
	// reason. They can't be used until Remove or the next Open succeeds.
	Failed []error
}

// LostHold is a hold that could not be restored.
type LostHold struct {
	Hold
	Err error
}

// Volumes is the storage of this host. It is safe for concurrent use.
type Volumes struct {
	opts  Options
	dir   *os.File // Options.Dir
	root  *os.File // Options.Storage, or nil
	image image
	plain directory
	// Why project quotas don't hold in dir and in root; nil if they do.
	quota, rootQuota error

	mu    sync.Mutex
	uses  map[string]*use // by the id of the volume, or by owner and tenant
	adds  sync.Mutex      // while an owner's volumes are counted
	kinds func() choice

	archives *turns
}

// Open opens the storage and brings it to what the records and the holds say.
// holds are those of sandboxes that outlived the last daemon.
func Open(ctx context.Context, o Options, holds []Hold) (_ *Volumes, _ Report, err error) {
	v := &Volumes{uses: map[string]*use{}, archives: newTurns(maxArchives)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open the volumes: %w", err), v.Close())
		}
	}()
	if err := v.configure(o); err != nil {
		return nil, Report{}, err
	}
	rep, err := v.reconcile(ctx, holds)
	if err != nil {
		return nil, rep, err
	}
	return v, rep, nil
}

func (v *Volumes) configure(o Options) (err error) {
	if os.Geteuid() != 0 {
		o.UID, o.GID, o.IDs = os.Getuid(), os.Getgid(), 1
	}
	o.MaxSize, o.TenantSize = cmp.Or(o.MaxSize, DefaultMaxSize), cmp.Or(o.TenantSize, DefaultSize)
	o.PerOwner, o.OwnerBytes = cmp.Or(o.PerOwner, DefaultPerOwner), cmp.Or(o.OwnerBytes, DefaultOwnerBytes)
	o.Size, o.IDs = min(cmp.Or(o.Size, DefaultSize), o.MaxSize), max(o.IDs, 1)
	// What the kernel tells of mounts has no links in it.
	if o.Dir, v.dir, err = openPrivate(o.Dir, o.GID); err != nil {
		return err
	}
	if o.Storage != "" {
		if o.Storage, v.root, err = openPrivate(o.Storage, o.GID); err != nil {
			return err
		}
	}
	v.opts = o
	v.quota = quotaWorks(v.dir)
	if v.root != nil {
		v.rootQuota = quotaWorks(v.root)
	}
	v.image = image{uid: o.UID, gid: o.GID}
	v.plain = directory{uid: o.UID, gid: o.GID}
	v.kinds = sync.OnceValue(v.bestKind)
	return nil
}

// gateMode is that of the directories above trees. Their group is that of the
// guests' root: it goes through them to the trees that it is given, and sees
// nothing else.
const gateMode = 0o710

// openPrivate makes a directory that only this user may enter, and the guests'
// root go through.
func openPrivate(dir string, gid int) (string, *os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", nil, err
	}
	if err := makeGate(dir, gid); err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	return dir, f, err
}

// makeGate gives a directory of ours its group and mode.
func makeGate(dir string, gid int) error {
	if err := os.Lchown(dir, -1, gid); err != nil {
		return err
	}
	return os.Chmod(dir, gateMode)
}

// Close lets go of the directories. Mounts of volumes that are held stay.
func (v *Volumes) Close() error {
	var err error
	for _, f := range []*os.File{v.dir, v.root} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// path is a volume's directory.
func (v *Volumes) path(id string) string { return filepath.Join(v.opts.Dir, id) }

// backing is how volumes of a kind are kept.
func (v *Volumes) backing(k sandbox.VolumeKind) backing {
	if k == sandbox.VolumeImage {
		return v.image
	}
	d := v.plain
	d.quota = k == sandbox.VolumeQuota
	return d
}

// choice is how new volumes are kept, and why not in a better way.
type choice struct {
	kind sandbox.VolumeKind
	why  error
}

// bestKind tries out what this host can do.
func (v *Volumes) bestKind() choice {
	if v.opts.Kind != "" {
		return choice{kind: v.opts.Kind}
	}
	err := v.image.works(v.opts.Dir)
	if err == nil {
		return choice{kind: sandbox.VolumeImage}
	}
	if v.quota == nil {
		return choice{sandbox.VolumeQuota, err}
	}
	return choice{sandbox.VolumeDirectory, errors.Join(err, v.quota)}
}

// Try finds out how volumes would be kept in dir, which must exist, and why not in
// a better way. It leaves nothing there.
func Try(dir string) (kind sandbox.VolumeKind, why error) {
	v := &Volumes{opts: Options{Dir: dir}, image: image{uid: os.Getuid(), gid: os.Getgid()}}
	f, err := os.Open(dir)
	if err != nil {
		return sandbox.VolumeDirectory, err
	}
	defer f.Close()
	v.quota = quotaWorks(f)
	c := v.bestKind()
	return c.kind, c.why
}

// Kind is how new volumes are kept on this host. why says why not in a better
// way: an image is better than a quota, which is better than a directory. The
// first call takes as long as it takes to try.
func (v *Volumes) Kind() (kind sandbox.VolumeKind, why error) {
	c := v.kinds()
	return c.kind, c.why
}
