package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
	if err := checkDir(source); err != nil {
		return err
	}
	err := Reachable(source, uid, gid)
	if errdefs.IsFailedPrecondition(err) {
		err = errors.Join(err, errClosed)
	}
	return err
}

// errClosed is what callers are told, who are not to see the host's paths.
var errClosed = sandbox.Refuse(errdefs.ErrFailedPrecondition, "sandboxes can't reach the volumes of this server: a directory above them is closed; agentbox doctor says which")

// Reachable reports a directory to which the user uid with the group gid can't
// go, because of one above it: FailedPrecondition. There must be no links on the
// way: InvalidArgument.
func Reachable(dir string, uid, gid uint32) error {
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if err := checkDir(at); err != nil {
			return err
		}
		fi, err := os.Stat(at)
		if err != nil {
			return err
		}
		if !mayPass(fi, uid, gid) {
			return &closedError{dir: at, user: uid}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// closedError is a directory that sandboxes can't go through.
type closedError struct {
	dir  string
	user uint32
}

func (e *closedError) Error() string {
	return fmt.Sprintf("user %d, as which sandboxes run, can't go through %s", e.user, e.dir)
}

func (*closedError) Unwrap() error { return errdefs.ErrFailedPrecondition }

func checkDir(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	case err != nil:
		return err
	case !fi.IsDir():
		return fmt.Errorf("%s is no directory: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}
