//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Names in the storage of tenants. Those that begin with a dot can't be ids.
const (
	ownersName    = ".owners"
	removedName   = ".removed"
	workspaceName = "workspace"
	outputsName   = "outputs"
)

// Tenants reports whether storage of tenants is kept.
func (v *Volumes) Tenants() bool { return v.root != nil }

// AcquireTenant makes the storage of an owner's tenant usable for holder, a
// sandbox's id, and makes it if there is none. Any number may write to it.
// FailedPrecondition: no storage is configured. A [sandbox.LimitError]: the owner has
// as many tenants as it may have; those who have storage go on using it.
func (v *Volumes) AcquireTenant(_ context.Context, owner, tenant, holder string) (Storage, error) {
	parts, err := v.tenantPath(owner, tenant)
	if err != nil {
		return Storage{}, fmt.Errorf("use a tenant's storage: %w", err)
	}
	key := tenantKey(owner, tenant)
	u := v.lock(key)
	defer v.unlock(key, u)
	s, err := v.makeTenant(parts)
	if err != nil {
		return Storage{}, fmt.Errorf("use the storage of tenant %s: %w", tenant, classify(err))
	}
	u.by[holder] = shares
	return s, nil
}

// ReleaseTenant ends holder's use of a tenant's storage, if there is any. The
// files stay.
func (v *Volumes) ReleaseTenant(owner, tenant, holder string) {
	key := tenantKey(owner, tenant)
	u := v.lock(key)
	defer v.unlock(key, u)
	delete(u.by, holder)
}

// RemoveTenant removes the storage of an owner's tenant with all that is in it,
// if there is any. One that somebody uses is not removed: a
// [sandbox.VolumeHeldError].
func (v *Volumes) RemoveTenant(_ context.Context, owner, tenant string) error {
	parts, err := v.tenantPath(owner, tenant)
	if err != nil {
		return fmt.Errorf("remove a tenant's storage: %w", err)
	}
	key := tenantKey(owner, tenant)
	u := v.lock(key)
	defer v.unlock(key, u)
	if err = u.any(tenant); err == nil {
		err = v.eraseTenant(parts)
	}
	if err != nil {
		return fmt.Errorf("remove the storage of tenant %s: %w", tenant, err)
	}
	return nil
}

// tenantKey can't be the id of a volume.
func tenantKey(owner, tenant string) string { return owner + "/" + tenant }

// tenantPath is where a tenant's storage lies, below the storage of all.
func (v *Volumes) tenantPath(owner, tenant string) ([]string, error) {
	if err := errors.Join(sandbox.CheckOwner(owner), sandbox.CheckTenantID(tenant)); err != nil {
		return nil, err
	}
	if v.root == nil {
		return nil, fmt.Errorf("no storage of tenants is configured: %w", errdefs.ErrFailedPrecondition)
	}
	if owner == sandbox.DefaultOwner {
		return []string{tenant}, nil
	}
	return []string{ownersName, owner, tenant}, nil
}

func (v *Volumes) makeTenant(parts []string) (Storage, error) {
	dir, err := v.openBelow(parts, true)
	if err != nil {
		return Storage{}, err
	}
	defer dir.Close()
	s := Storage{NotEnforced: []string{sandbox.LimitDisk}}
	if v.rootQuota == nil {
		if err := limitProject(dir, v.opts.TenantSize); err != nil {
			return Storage{}, err
		}
		s.NotEnforced = nil
	}
	for name, path := range map[string]*string{workspaceName: &s.Workspace, outputsName: &s.Outputs} {
		f, err := mkdirAt(dir, name, treeMode, v.opts.UID, v.opts.GID)
		if err != nil {
			return Storage{}, err
		}
		f.Close()
		*path = filepath.Join(dir.Name(), name)
	}
	return s, nil
}

// openBelow opens a directory below the storage without following links, and
// makes what is missing if asked to.
func (v *Volumes) openBelow(parts []string, missing bool) (*os.File, error) {
	v.adds.Lock() // owners' directories are made by several at once
	defer v.adds.Unlock()
	dir := v.root
	for i, name := range parts {
		open := openDir
		switch {
		case missing && i == len(parts)-1:
			open = v.addTenant
		case missing:
			open = v.addDir
		}
		next, err := open(dir, name)
		if dir != v.root {
			dir.Close()
		}
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

func (v *Volumes) addDir(dir *os.File, name string) (*os.File, error) {
	return mkdirAt(dir, name, gateMode, os.Getuid(), v.opts.GID)
}

// addTenant opens a tenant's directory in dir, which has those of one owner. One more
// than the owner may have is not made. The caller holds v.adds.
func (v *Volumes) addTenant(dir *os.File, tenant string) (*os.File, error) {
	if _, err := statAt(dir, tenant); !errors.Is(err, fs.ErrNotExist) {
		return v.addDir(dir, tenant)
	}
	all, err := openDir(dir, ".") // with a place of its own to read from
	if err != nil {
		return nil, err
	}
	defer all.Close()
	n := 0
	err = eachName(all, func(name string) error {
		if !strings.HasPrefix(name, ".") {
			n++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n >= v.opts.Tenants {
		return nil, &sandbox.LimitError{
			Quota: true, RetryAfter: quotaPatience,
			Text: fmt.Sprintf("Maximum number of tenants with storage (%d) reached; destroy a tenant's last sandbox with remove_storage=true to make room", v.opts.Tenants),
		}
	}
	return v.addDir(dir, tenant)
}

// eraseTenant takes the tenant's directory away with one rename, so that nobody
// ever finds half of it.
func (v *Volumes) eraseTenant(parts []string) error {
	dir, err := v.openBelow(parts, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if v.rootQuota == nil {
		if err := dropProject(dir); err != nil {
			return err
		}
	}
	trash, err := mkdirAt(v.root, removedName, 0o700, os.Getuid(), os.Getgid())
	if err != nil {
		return err
	}
	defer trash.Close()
	parent, name := v.root, parts[len(parts)-1]
	if above := parts[:len(parts)-1]; len(above) > 0 {
		if parent, err = v.openBelow(above, false); err != nil {
			return err
		}
		defer parent.Close()
	}
	to := ids.Hex(idBytes)
	if err := unix.Renameat2(int(parent.Fd()), name, int(trash.Fd()), to, unix.RENAME_NOREPLACE); err != nil {
		return &fs.PathError{Op: "move", Path: name, Err: err}
	}
	return removeTree(trash, to)
}

// sweepTenants finishes removals, and trials of quotas, that were interrupted.
func (v *Volumes) sweepTenants() error {
	if v.root == nil {
		return nil
	}
	return errors.Join(removeTree(v.root, removedName), removeProbes(v.root))
}
