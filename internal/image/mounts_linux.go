package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// detachMounts detaches everything that is mounted below dir, so that removing
// it does not reach into another file system.
func detachMounts(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	var below []string
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		// proc_pid_mountinfo(5): blanks and backslashes are octal.
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		if strings.HasPrefix(point, dir+"/") {
			below = append(below, point)
		}
	}
	for _, point := range slices.Backward(below) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("detach %s: %w", point, err)
		}
	}
	return nil
}
