package wire

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"agentbox/internal/doctor"
	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/volume"
)

// reachable reports a directory to which sandboxes, which run as user, can't go.
// It need not exist.
func reachable(dir string, user uint32) error {
	above, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return err
	}
	group := user
	if os.Geteuid() != 0 {
		group = uint32(os.Getgid())
	}
	return runtime.Reachable(filepath.Join(above, filepath.Base(dir)), user, group)
}

// volumeFacts are what the doctor judges of volumes, found by trying.
func volumeFacts(dataDir string) doctor.Volumes {
	kind, why := volume.Try(dataDir)
	return doctor.Volumes{Kind: kind, Why: why, Closed: reachable(filepath.Join(dataDir, volumesDir), doctor.SandboxUser())}
}

// openVolumes opens the back end and what outlives its sandboxes.
func (d *daemon) openVolumes(ctx context.Context) (err error) {
	if d.rt, err = daemonBackend(d.cfg.DataDir); err != nil {
		return err
	}
	d.later(d.rt.Close)
	recs, err := d.store.Sandboxes(ctx)
	if err != nil {
		return err
	}
	v, user := d.cfg.Volumes, d.rt.Capabilities()
	o := volume.Options{
		Dir: filepath.Join(d.cfg.DataDir, volumesDir), Storage: d.cfg.Storage, Records: d.store,
		UID: int(user.HostUser), GID: int(user.HostUser), IDs: user.HostUsers,
		Size: v.Size, MaxSize: v.MaxSize, PerOwner: int(v.PerOwner), OwnerBytes: v.SpacePerOwner, TenantSize: v.StorageSize, Tenants: int(v.Tenants),
	}
	var rep volume.Report
	if d.vols, rep, err = volume.Open(ctx, o, manager.Holds(recs)); err != nil {
		return err
	}
	d.later(d.vols.Close)
	tellOfVolumes(d.hooks.Log, rep)
	for _, dir := range []string{o.Dir, o.Storage} {
		if dir == "" {
			continue
		}
		if err := reachable(dir, user.HostUser); err != nil {
			d.hooks.Log.Warn("sandboxes can't have volumes", "in", dir, "error", err, "remedy", "chmod o+x that directory; what is private in the data directory stays so")
		}
	}
	return nil
}

// tellOfVolumes says what was found amiss with the volumes.
func tellOfVolumes(log *slog.Logger, rep volume.Report) {
	for _, name := range rep.Finished {
		log.Info("a volume that was half made or half removed is gone", "volume", name)
	}
	for _, h := range rep.Lost {
		log.Error("a sandbox has lost a volume", "sandbox", h.Holder, "volume", h.Volume, "tenant", h.Tenant, "error", h.Err)
	}
	for _, id := range rep.Unknown {
		log.Warn("a directory of the volumes has no record and is left alone", "id", id)
	}
	for _, err := range rep.Failed {
		log.Error("bring the volumes in order", "error", err)
	}
}
