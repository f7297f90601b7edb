//go:build linux

package volume

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// fitrim is FITRIM of linux/fs.h: _IOWR('X', 121, struct fstrim_range).
	fitrim = 0xc0185879
	// trimTime is how long an unmount waits for space to be given back: a volume of
	// 64 GiB takes a fraction of it, one whose disk is too slow is left as it is.
	trimTime = 2 * time.Second
	// trimStep is what is given back at once, in bytes: whole groups of blocks, few
	// enough that the time is looked at often.
	trimStep = 1 << 30
)

// fstrimRange is struct fstrim_range of linux/fs.h.
type fstrimRange struct{ start, len, minlen uint64 }

// trim gives the host what is free in the mounted file system, until it is done or
// the time is over. The mount option discard does so, too, but in the background,
// and the kernel gives that up when the file system is unmounted.
func trim(mnt string, most time.Duration) error {
	fd, err := unix.Open(mnt, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", mnt, err)
	}
	defer unix.Close(fd)
	// What was removed is free once the journal says so.
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("sync %s: %w", mnt, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("measure %s: %w", mnt, err)
	}
	size := st.Blocks * uint64(st.Bsize)
	deadline := time.Now().Add(most)
	for at := uint64(0); at < size && time.Now().Before(deadline); at += trimStep {
		r := fstrimRange{start: at, len: trimStep}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fitrim, uintptr(unsafe.Pointer(&r))); e != 0 {
			return fmt.Errorf("trim %s: %w", mnt, e)
		}
	}
	return nil
}
