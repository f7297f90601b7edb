//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentbox/internal/sandbox"
)

// probePrefix begins the name of a directory in which a kind was tried out.
const probePrefix = ".probe-"

// reconcile brings records, directories, mounts and loop devices together. One
// volume that can't be brought in order must not keep the others away, so only a
// failure of the records or of the host's lists ends it.
func (v *Volumes) reconcile(ctx context.Context, holds []Hold) (Report, error) {
	var rep Report
	all, err := v.opts.Records.Volumes(ctx, "")
	if err != nil {
		return rep, err
	}
	v.restore(ctx, holds, &rep)
	if err := v.unmountUnused(&rep); err != nil {
		return rep, err
	}
	known := map[string]bool{}
	for _, vol := range all {
		known[vol.ID] = true
		if vol.State == sandbox.VolumeReady {
			continue
		}
		name := vol.Owner + "/" + vol.Name
		if err := v.erase(ctx, vol); err != nil {
			rep.Failed = append(rep.Failed, fmt.Errorf("finish the removal of %s: %w", name, err))
			continue
		}
		rep.Finished = append(rep.Finished, name)
	}
	if err := v.sweep(known, &rep); err != nil {
		return rep, err
	}
	if err := v.sweepTenants(); err != nil {
		rep.Failed = append(rep.Failed, fmt.Errorf("finish removals of tenants' storage: %w", err))
	}
	return rep, v.detachUnused()
}

// Detach unmounts what is mounted of the volumes in dir, which nobody uses any
// more, so that dir can be removed. It need not exist.
func Detach(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the volumes: %w", err)
	}
	v, rep := &Volumes{opts: Options{Dir: dir}}, Report{}
	err = v.unmountUnused(&rep)
	if err = errors.Join(append(rep.Failed, err, v.detachUnused())...); err != nil {
		return fmt.Errorf("unmount the volumes: %w", err)
	}
	return nil
}

// restore gives the volumes back to those who held them.
func (v *Volumes) restore(ctx context.Context, holds []Hold, rep *Report) {
	for _, h := range holds {
		var err error
		if h.Volume != "" {
			_, err = v.Acquire(ctx, h.Owner, h.Volume, h.Holder, h.ReadOnly)
		} else {
			_, err = v.AcquireTenant(ctx, h.Owner, h.Tenant, h.Holder)
		}
		if err != nil {
			rep.Lost = append(rep.Lost, LostHold{Hold: h, Err: err})
		}
	}
}

// unmountUnused unmounts the volumes that nobody holds.
func (v *Volumes) unmountUnused(rep *Report) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		id, ok := v.idOf(at, mountName)
		if !ok || v.uses[id] != nil || slices.Contains(rep.Unmounted, id) {
			continue
		}
		// What is busy stays mounted, and is used as it is when it is needed.
		if err := v.image.close(v.path(id)); err != nil {
			rep.Failed = append(rep.Failed, err)
			continue
		}
		rep.Unmounted = append(rep.Unmounted, id)
	}
	return nil
}

// detachUnused clears our loop devices that are not mounted. A mounted one is
// cleared when it no longer is, which changes nothing: so all may be told.
func (v *Volumes) detachUnused() error {
	all, err := loops()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, l := range all {
		if _, ours := v.idOf(strings.TrimSuffix(l.file, " (deleted)"), imageName); ours {
			err = errors.Join(err, detach(l))
		}
	}
	return err
}

// idOf returns the id of the volume in whose directory path is called name.
func (v *Volumes) idOf(path, name string) (string, bool) {
	dir, base := filepath.Split(path)
	parent, id := filepath.Split(filepath.Clean(dir))
	ok := base == name && filepath.Clean(parent) == v.opts.Dir && (isID(id) || strings.HasPrefix(id, probePrefix))
	return id, ok
}

// isID reports whether s has the form of a volume's id.
func isID(s string) bool {
	return len(s) == 2*idBytes && strings.Trim(s, "0123456789abcdef") == ""
}

// sweep finds directories that no record knows.
func (v *Volumes) sweep(known map[string]bool, rep *Report) error {
	if err := removeProbes(v.dir); err != nil {
		rep.Failed = append(rep.Failed, err)
	}
	return eachName(v.dir, func(name string) error {
		if isID(name) && !known[name] {
			rep.Unknown = append(rep.Unknown, name)
		}
		return nil
	})
}

// removeProbes removes what trying things out left behind in dir.
func removeProbes(dir *os.File) error {
	top, err := openDir(dir, ".")
	if err != nil {
		return err
	}
	defer top.Close()
	return eachName(top, func(name string) error {
		if !strings.HasPrefix(name, probePrefix) {
			return nil
		}
		if err := removeTree(dir, name); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		return nil
	})
}
