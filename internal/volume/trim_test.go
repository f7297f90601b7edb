//go:build linux

package volume

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCloseGivesBack: what was removed just before its volume is let go of is free
// on the host afterwards, whether the kernel's own way, which is in the background
// and ends with the mount, came that far or not.
func TestCloseGivesBack(t *testing.T) {
	dir, i := mountedImage(t, 64<<20)
	mnt := filepath.Join(dir, mountName)
	must(t, unix.Mount("", mnt, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "nodiscard"))
	f, err := os.Create(filepath.Join(mnt, "f"))
	must(t, err)
	_, err = f.Write(make([]byte, 16<<20))
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
	before, err := i.used(t.Context(), dir)
	must(t, err)
	must(t, os.Remove(f.Name()))
	must(t, i.close(dir))
	after, err := i.used(t.Context(), dir)
	must(t, err)
	if after > before-15<<20 {
		t.Errorf("%d bytes of the disk before the file was removed, %d after", before, after)
	}
}

// TestTrimEnds: a large volume that is almost empty is trimmed in whole, and no
// time at all stops one.
func TestTrimEnds(t *testing.T) {
	dir, i := mountedImage(t, 64<<30)
	mnt := filepath.Join(dir, mountName)
	must(t, trim(mnt, 0))
	began := time.Now()
	must(t, trim(mnt, time.Hour))
	t.Logf("64 GiB took %v", time.Since(began))
	must(t, i.close(dir))
}

// mountedImage is a directory with an image of size bytes that is mounted.
func mountedImage(t *testing.T, size int64) (string, image) {
	t.Helper()
	dir, i := t.TempDir(), image{uid: os.Getuid(), gid: os.Getgid()}
	if err := i.works(dir); err != nil {
		t.Skipf("no images can be mounted here: %v", err)
	}
	must(t, i.create(t.Context(), dir, size))
	_, err := i.open(dir)
	must(t, err)
	t.Cleanup(func() { _ = i.close(dir) })
	return dir, i
}
