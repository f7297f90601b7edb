package wire

import (
	"os"
	"path/filepath"

	"agentbox/internal/doctor"
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
