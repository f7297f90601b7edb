//go:build linux

package pid1

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls on the calling thread alone; package syscall would make some of
// them on all threads.

func rawCall(trap, a, b, c uintptr) error {
	if _, _, e := syscall.RawSyscall(trap, a, b, c); e != 0 {
		return e
	}
	return nil
}

// direct is recvfrom or sendto of a socket, with flags that keep it from blocking.
func direct(trap, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

func setGroups(groups []uint32) error {
	if len(groups) == 0 {
		return rawCall(unix.SYS_SETGROUPS, 0, 0, 0)
	}
	_, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}

// sigaction is the kernel's struct sigaction: handler, flags, restorer, mask.
type sigaction struct{ handler, flags, restorer, mask uint64 }

// resetSignal gives a signal its default action.
func resetSignal(s syscall.Signal) error {
	var byDefault sigaction
	_, _, e := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(byDefault.mask), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
