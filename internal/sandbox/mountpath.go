package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// MaxMounts is how many directories of the host one sandbox may see: each takes
// descriptors of its processes on the host.
const MaxMounts = 16

// Where tenants' storage is in a sandbox.
const (
	WorkspacePath = "/workspace"
	OutputsPath   = "/mnt/user-data/outputs"
)

var (
	// sealedPaths and all below them are agentbox's or the kernel's.
	sealedPaths = []string{"/.agentbox", "/dev", "/proc", "/run", "/sys", "/var/run"}
	// neededPaths hold what an image's programs need to run; something else in
	// their place would leave a sandbox without a shell. Below them there may be
	// mounts.
	neededPaths = []string{
		"/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/mnt", "/sbin", "/tmp",
		"/usr", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/local/bin", "/usr/local/lib",
		"/usr/local/sbin", "/usr/sbin", "/usr/share", "/var", "/var/lib",
	}
)

// CheckMountPaths reports the first path at which a sandbox can't have a mount
// beside the others, as an [*InvalidError] of the given field: paths are
// absolute and clean, hide nothing that an image needs, and none lies in
// another.
func CheckMountPaths(field string, paths []string) error {
	if len(paths) > MaxMounts {
		return &InvalidError{Field: field, Value: fmt.Sprint(len(paths)), Allowed: fmt.Sprintf("at most %d", MaxMounts)}
	}
	for i, p := range paths {
		if err := checkMountPath(field, p); err != nil {
			return err
		}
		for _, other := range paths[:i] {
			if within(p, other) || within(other, p) {
				return &InvalidError{Field: field, Value: Clip(p, maxShown), Allowed: "a path that is not, and is not in, that of another: " + Clip(other, maxShown)}
			}
		}
	}
	return nil
}

func checkMountPath(field, p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		return &InvalidError{Field: field, Value: Clip(p, maxShown), Allowed: "an absolute path without . and .., double and last slashes"}
	}
	if err := checkText(field, p, maxPath); err != nil {
		return err
	}
	if slices.ContainsFunc([]byte(p), func(c byte) bool { return c < ' ' || c == 0x7f }) {
		return &InvalidError{Field: field, Value: Clip(p, maxShown), Allowed: "a path without control characters"}
	}
	if slices.Contains(neededPaths, p) || slices.ContainsFunc(sealedPaths, func(s string) bool { return within(p, s) }) {
		return &InvalidError{Field: field, Value: Clip(p, maxShown), Allowed: "a path of its own, such as /data: not /, not a directory of the system, nothing in " + strings.Join(sealedPaths, ", ")}
	}
	return nil
}

// within reports whether p is dir or lies in it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
