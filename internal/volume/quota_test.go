//go:build linux

package volume_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// quotaDisk mounts a small file system that enforces project quotas.
func quotaDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system with project quotas")
	}
	dir := t.TempDir()
	img, mnt := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	must(t, os.Mkdir(mnt, 0o755))
	must(t, os.WriteFile(img, nil, 0o600))
	must(t, os.Truncate(img, 128<<20))
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota", img},
		{"mount", "-o", "loop,prjquota", img, mnt},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no file system with project quotas can be made here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Error(err, unix.Unmount(mnt, unix.MNT_DETACH))
		}
	})
	return mnt
}

// Where a file system has project quotas, directories have limits of bytes and
// of files.
func TestQuota(t *testing.T) {
	mnt := quotaDisk(t)
	h := newHost(t, sandbox.VolumeQuota)
	h.Dir, h.Storage, h.TenantSize = filepath.Join(mnt, "volumes"), filepath.Join(mnt, "storage"), volume.MinSize
	v, _ := h.open(t)
	create(t, v, "default", "data")
	create(t, v, "default", "other")
	m, err := v.Acquire(t.Context(), "default", "data", "s", false)
	must(t, err)
	_, err = v.AcquireTenant(t.Context(), "default", "acme", "s")
	must(t, err)
	s, err := v.AcquireTenant(t.Context(), "default", "acme", "s2") // again
	must(t, err)
	if len(m.NotEnforced)+len(s.NotEnforced) != 0 {
		t.Errorf("not enforced: %v, %v", m.NotEnforced, s.NotEnforced)
	}
	for _, dir := range []string{m.Path, s.Outputs} {
		if n := fill(t, filepath.Join(dir, "full")); n < volume.MinSize/2 || n > volume.MinSize {
			t.Errorf("%d bytes went into %s, which may have %d", n, dir, volume.MinSize)
		}
		must(t, os.Remove(filepath.Join(dir, "full")))
		err := volume.Bounded(func() (err error) {
			for i := 0; i < 5000 && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644)
			}
			return err
		})
		if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
			t.Errorf("5000 files in %s: %v", dir, err)
		}
	}
	if n := fill(t, filepath.Join(s.Workspace, "full")); n != 0 {
		t.Errorf("a tenant's two directories are limited each: %d more bytes", n)
	}
	info, err := v.Inspect(t.Context(), "default", "data")
	if err != nil || info.Used == 0 || info.Used > volume.MinSize || info.Kind != sandbox.VolumeQuota {
		t.Errorf("%+v, %v", info, err)
	}
	other := acquire(t, v, "default", "other", "s")
	if n := fill(t, filepath.Join(other, "full")); n < volume.MinSize/2 {
		t.Errorf("%d bytes in a volume beside a full one", n)
	}
	for _, name := range []string{"data", "other"} {
		release(t, v, "default", name, "s")
		must(t, v.Remove(t.Context(), "default", name))
	}
	v.ReleaseTenant("default", "acme", "s")
	v.ReleaseTenant("default", "acme", "s2")
	must(t, v.RemoveTenant(t.Context(), "default", "acme"))
}

// fill writes until there is no more space, and returns how many bytes went in.
func fill(t *testing.T, path string) (n int64) {
	t.Helper()
	full := func(err error) bool { return errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) }
	err := volume.Bounded(func() error {
		f, err := os.Create(path)
		for err == nil && n < 4*volume.MinSize {
			var m int
			m, err = f.Write(make([]byte, 64<<10))
			n += int64(m)
		}
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return err
	})
	if err != nil && !full(err) {
		t.Error(err)
	}
	return n
}
