//go:build linux

package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of Linux's linux/fs.h, linux/quota.h and linux/dqblk_xfs.h that
// x/sys/unix lacks.
const (
	fsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR

	xflagInherit = 0x200 // FS_XFLAG_PROJINHERIT

	projectQuota = 2        // PRJQUOTA
	quotaGet     = 0x800007 // Q_GETQUOTA
	quotaSet     = 0x800008 // Q_SETQUOTA
	quotaState   = 0x5805   // Q_XGETQSTAT

	projectsEnforced = 1 << 5 // FS_QUOTA_PDQ_ENFD

	setBlocks, setInodes = 1, 4 // QIF_BLIMITS, QIF_ILIMITS
)

// fileAttr is Linux's struct fsxattr.
type fileAttr struct {
	Xflags, Extsize, Nextents, Project, Cowextsize uint32
	_                                              [8]byte
}

// limits is Linux's struct if_dqblk.
type limits struct {
	BlockHard  uint64 // KiB
	BlockSoft  uint64
	Space      uint64 // bytes in use
	InodeHard  uint64
	InodeSoft  uint64
	Inodes     uint64
	BlockGrace uint64
	InodeGrace uint64
	Valid      uint32
	_          uint32
}

// bytesPerInode is how many bytes of a limit come with the right to one file: as
// many as ext4 gives by default.
const bytesPerInode = 16 << 10

// enforcesProjects reports whether the file system of dir holds directories to
// limits. Linux before 5.14 is not asked.
func enforcesProjects(dir *os.File) bool {
	var state [256]byte // struct fs_quota_stat has 80
	if quotactl(dir, quotaState, 0, unsafe.Pointer(&state)) != nil {
		return false
	}
	const flags = 2 // offset of qs_flags
	return binary.NativeEndian.Uint16(state[flags:])&projectsEnforced != 0
}

// quotaWorks tries out whether a limit holds in dir, so that no limit is promised
// of which the host only seems to be capable.
func quotaWorks(dir *os.File) (err error) {
	if !enforcesProjects(dir) {
		return fmt.Errorf("%s: the file system enforces no project quotas", dir.Name())
	}
	path, err := os.MkdirTemp(dir.Name(), probePrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
	probe, err := os.Open(path)
	if err != nil {
		return err
	}
	defer probe.Close()
	const limit = 64 << 10
	if err := limitProject(probe, limit); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropProject(probe)) }()
	err = bounded(func() error { return os.WriteFile(filepath.Join(path, "full"), make([]byte, 4*limit), 0o600) })
	if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return errors.Join(err, errors.New("a project quota let more through than its limit"))
}

// bounded calls f as somebody whom limits concern: Linux lets who has
// CAP_SYS_RESOURCE, as root has, exceed them. No sandbox's process has it.
func bounded(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and has lost its capability
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE; err == nil {
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// limitProject holds dir, and all that will be made in it, to size bytes and as
// many files as fit. It may be repeated.
func limitProject(dir *os.File, size int64) error {
	var attr fileAttr
	if err := ioctl(dir, fsGetXattr, unsafe.Pointer(&attr)); err != nil {
		return fmt.Errorf("read the project of %s: %w", dir.Name(), err)
	}
	if attr.Project == 0 {
		id, err := freeProject(dir)
		if err != nil {
			return err
		}
		attr.Project = id
	}
	l := limits{
		BlockHard: uint64(size+1023) / 1024, InodeHard: uint64(max(size/bytesPerInode, 64)),
		Valid: setBlocks | setInodes,
	}
	if err := quotactl(dir, quotaSet, attr.Project, unsafe.Pointer(&l)); err != nil {
		return fmt.Errorf("limit project %d: %w", attr.Project, err)
	}
	attr.Xflags |= xflagInherit
	if err := ioctl(dir, fsSetXattr, unsafe.Pointer(&attr)); err != nil {
		return fmt.Errorf("set the project of %s: %w", dir.Name(), err)
	}
	return nil
}

// freeProject draws a number that has no limits and no files.
func freeProject(dir *os.File) (uint32, error) {
	for range 64 {
		// High, because people count projects from 1.
		id := 1<<30 + rand.Uint32N(1<<30)
		var l limits
		if err := quotactl(dir, quotaGet, id, unsafe.Pointer(&l)); err == nil && l.BlockHard == 0 && l.Space == 0 && l.Inodes == 0 {
			return id, nil
		} else if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			return id, nil
		} else if err != nil {
			return 0, fmt.Errorf("look for a free project: %w", err)
		}
	}
	return 0, fmt.Errorf("look for a free project: all that were drawn are taken")
}

// projectUse is how many bytes the project of dir takes.
func projectUse(dir *os.File) (int64, error) {
	var attr fileAttr
	if err := ioctl(dir, fsGetXattr, unsafe.Pointer(&attr)); err != nil {
		return 0, fmt.Errorf("read the project of %s: %w", dir.Name(), err)
	}
	var l limits
	if err := quotactl(dir, quotaGet, attr.Project, unsafe.Pointer(&l)); err != nil {
		return 0, fmt.Errorf("read the use of project %d: %w", attr.Project, err)
	}
	return int64(l.Space), nil
}

// dropProject takes the limits of dir's project away, so that the number can be
// used again.
func dropProject(dir *os.File) error {
	var attr fileAttr
	if err := ioctl(dir, fsGetXattr, unsafe.Pointer(&attr)); err != nil || attr.Project == 0 {
		return nil // has none
	}
	l := limits{Valid: setBlocks | setInodes}
	if err := quotactl(dir, quotaSet, attr.Project, unsafe.Pointer(&l)); err != nil {
		return fmt.Errorf("free project %d: %w", attr.Project, err)
	}
	return nil
}

func quotactl(dir *os.File, cmd, id uint32, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), uintptr(cmd<<8|projectQuota), uintptr(id), uintptr(arg), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
