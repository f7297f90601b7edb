package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Mount is a directory of the host that a sandbox sees, with all that is in it
// but other file systems.
//
// The host and all sandboxes that see it see changes at once. Nothing of it is
// saved by Stop or Suspend: the same directory must be there for the next Start
// or Resume. What a guest does in it is bounded so:
//
//   - Guests can't make device nodes there. FIFOs and sockets are in memory, of
//     one sandbox only.
//   - Set-user-id bits and owners are kept as files' attributes and mean nothing
//     inside beyond what they mean anywhere in that sandbox. On the host owners
//     are those of the guests' users, none of the host's.
//   - Symbolic links are followed inside the sandbox only. The host must not
//     follow them.
//   - A read-only mount can't be written to by the process that isolates,
//     either.
//
// How much fits into it is not the back end's concern.
type Mount struct {
	// Source is an absolute path on the host without links. It must be there
	// until the sandbox is destroyed, and Capabilities.HostUser must be able to
	// go through all directories above it.
	Source string
	// Path is where the sandbox sees it, as sandbox.CheckMountPaths allows.
	Path     string
	ReadOnly bool
}

// CheckMounts reports mounts that can't be: InvalidArgument for their paths,
// NotFound for a source that is not there, FailedPrecondition for one to which
// the host's user uid with the group gid can't go.
func CheckMounts(mounts []Mount, uid, gid uint32) error {
	paths := make([]string, len(mounts))
	for i, m := range mounts {
		paths[i] = m.Path
	}
	if err := sandbox.CheckMountPaths("mounts", paths); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := checkSource(m.Source, uid, gid); err != nil {
			return fmt.Errorf("mount a directory on %s: %w", m.Path, err)
		}
	}
	return nil
}

func checkSource(source string, uid, gid uint32) error {
	if !filepath.IsAbs(source) || filepath.Clean(source) != source {
		return fmt.Errorf("%q is no absolute path: %w", source, errdefs.ErrInvalidArgument)
	}
	for at := source; ; at = filepath.Dir(at) {
		fi, err := os.Lstat(at)
		switch {
		case os.IsNotExist(err):
			return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
		case err != nil:
			return err
		case !fi.IsDir():
			return fmt.Errorf("%s is no directory: %w", at, errdefs.ErrInvalidArgument)
		case at != source && !mayPass(fi, uid, gid):
			return fmt.Errorf("the sandbox's user on the host, %d, can't go through %s (mode 0711 would let it): %w", uid, at, errdefs.ErrFailedPrecondition)
		}
		if strings.TrimRight(at, "/") == "" {
			return nil
		}
	}
}
