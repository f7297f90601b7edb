package cgroup

import (
	"fmt"
	"path"
	"strings"
)

// detectV1 finds the hierarchy of each controller below root. Directories may
// hold several controllers, with their names joined by commas.
func (h *Host) detectV1(root string) error {
	names, err := h.tree.Subdirs(root)
	if err != nil {
		return fmt.Errorf("no control groups are mounted: %w", err)
	}
	base := map[string]string{}
	var refused error
	for _, name := range names {
		dir := path.Join(root, name)
		if !h.tree.Exists(path.Join(dir, "tasks")) {
			continue
		}
		for _, c := range strings.Split(name, ",") {
			if c != memory && c != cpu && c != cpuacct && c != pids {
				continue
			}
			if err := h.tree.Writable(path.Join(dir, "tasks")); err != nil {
				refused = err
				continue
			}
			// The joined name sorts after the plain link to it; both are good.
			base[c] = dir
		}
	}
	if refused != nil && len(base) == 0 {
		if h.tree.UID() != 0 {
			return fmt.Errorf("cgroup v1 can only be used by root: %w", refused)
		}
		return fmt.Errorf("cgroup v1 is mounted, but not for us to use (a container?): %w", refused)
	}
	if len(base) == 0 {
		return fmt.Errorf("no control groups are mounted at %s", root)
	}
	h.mode, h.base, h.layout = V1, base, layoutV1{}
	h.reason = "groups are made in each hierarchy's directory " + top
	return nil
}
