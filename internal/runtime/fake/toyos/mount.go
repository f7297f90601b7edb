package toyos

import (
	"path"
	"slices"
	"strings"
	"syscall"
)

// mount is a disk that is seen on a directory of another. Where a path leads is
// decided by its text: links and working directories don't lead into it from
// outside, nor out of it.
type mount struct {
	path     string
	disk     *disk
	readOnly bool
}

// NewVolume makes an empty disk without a limit, for [Disk.Mount].
func NewVolume() *Disk {
	d := newDisk(0)
	d.root.mode = syscall.S_IFDIR | 0o777
	return &Disk{d}
}

// Mount shows another disk, which several may show at once, on a directory, and
// makes that if it is missing.
func (d *Disk) Mount(at string, volume *Disk, readOnly bool) {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	d.disk.mustDir(strings.TrimPrefix(at, "/"), 0o755, d.disk.users[0])
	d.disk.mounts = append(d.disk.mounts, mount{at, volume.disk, readOnly})
}

// at is the view of the disk that p leads to, and the path there.
func (v *view) at(p string) (*view, string) {
	if len(v.d.mounts) == 0 || p == "" || v.tree != nil {
		return v, p
	}
	full := p
	if !strings.HasPrefix(p, "/") {
		full = v.dir + "/" + p
	}
	full = path.Clean(full)
	i := slices.IndexFunc(v.d.mounts, func(m mount) bool { return full == m.path || strings.HasPrefix(full, m.path+"/") })
	if i < 0 {
		return v, p
	}
	m := v.d.mounts[i]
	return &view{d: m.disk, who: v.who, dir: "/", readOnly: m.readOnly}, "/" + strings.TrimPrefix(full[len(m.path):], "/")
}
