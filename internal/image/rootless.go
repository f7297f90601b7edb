package image

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strings"

	"github.com/containerd/errdefs"
)

// checkSubordinateIDs reports whether mmdebstrap can give the files of an image
// to different owners without being root, and how to make it so.
func checkSubordinateIDs() error {
	if _, err := exec.LookPath("newuidmap"); err != nil {
		return fmt.Errorf("building an image without root needs newuidmap: sudo apt-get install -y uidmap: %w", errdefs.ErrFailedPrecondition)
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Errorf("look up current user: %w", err)
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("read subordinate ids: %w", err)
		}
		if !hasRange(string(text), u.Username, u.Uid) {
			return fmt.Errorf("building an image without root needs subordinate ids, %s has none in %s: "+
				"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s: %w", u.Username, file, u.Username, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// hasRange reports whether a file of "user:first:count" lines names the user.
func hasRange(text, name, uid string) bool {
	for line := range strings.Lines(text) {
		owner, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && (owner == name || owner == uid) {
			return true
		}
	}
	return false
}
