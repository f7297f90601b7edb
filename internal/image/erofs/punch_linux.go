package erofs

import (
	"os"

	"golang.org/x/sys/unix"
)

// punchHole gives the disk space of e back; it reads as zeros from then on.
func punchHole(f *os.File, e extent) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, e.off, e.length)
}
