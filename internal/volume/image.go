//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Names in an image's directory.
const (
	imageName = "image"
	mountName = "mnt"
)

// image keeps volumes as ext4 file systems in sparse files.
type image struct{ uid, gid int }

// mkfsTime is how long an empty file system may take: a start of a program and
// some megabytes written, on a slow disk.
const mkfsTime = 2 * time.Minute

func (image) create(ctx context.Context, dir string, size int64) error {
	path := filepath.Join(dir, imageName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("size the image: %w", err)
	}
	if err := mkfs(ctx, path); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// mkfs makes a file system. No blocks are kept for root, and tables are written
// when they are needed, so that the file stays sparse.
func mkfs(ctx context.Context, path string) error {
	program, err := findMkfs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mkfsTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	// It must not write on when the daemon is gone. The signal is sent when the
	// thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a file system: %w: %.500s", errors.Join(ctx.Err(), err), out)
	}
	return nil
}

// findMkfs finds mkfs.ext4 also where an ordinary PATH does not look.
func findMkfs() (string, error) {
	const name = "mkfs.ext4"
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s (of e2fsprogs): %w", name, err)
	}
	return path, nil
}

// works tries with a small image in dir whether this process can make, mount and
// unmount one.
func (i image) works(dir string) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("mount a file system: only root may: %w", errdefs.ErrPermissionDenied)
	}
	probe, err := os.MkdirTemp(dir, probePrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(probe)) }()
	if err := i.create(context.Background(), probe, MinSize); err != nil {
		return err
	}
	if _, err := i.open(probe); err != nil {
		return err
	}
	return i.close(probe)
}

// open mounts the image unless it is mounted.
func (i image) open(dir string) (string, error) {
	mnt := filepath.Join(dir, mountName)
	if err := os.Mkdir(mnt, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	mounted, err := isMount(dir, mnt)
	if err != nil {
		return "", err
	}
	if !mounted {
		if err := mountImage(filepath.Join(dir, imageName), mnt); err != nil {
			return "", err
		}
	}
	tree, err := makeTree(mnt, dataName, i.uid, i.gid)
	if err != nil && !mounted {
		err = errors.Join(err, i.close(dir))
	}
	return tree, err
}

// mountImage mounts so that a broken file system can't stop the host, and that
// space which is free in it is free on the host.
func mountImage(path, mnt string) error {
	dev, err := attach(path)
	if err != nil {
		return err
	}
	defer dev.Close() // the mount holds the device
	err = unix.Mount(dev.Name(), mnt, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "errors=remount-ro,discard")
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// busyTime is how long a tree may be busy after its last user is gone: the
// kernel closes the files of a process that ended a little later.
const busyTime = 5 * time.Second

// close unmounts the image, and gives back the space that is free in it.
func (i image) close(dir string) error {
	mnt := filepath.Join(dir, mountName)
	for deadline, first := time.Now().Add(busyTime), true; ; first = false {
		mounted, err := isMount(dir, mnt)
		if err != nil || !mounted {
			return err
		}
		if first {
			_ = trim(mnt, trimTime) // a broken file system has to go, too
		}
		err = unix.Unmount(mnt, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", mnt, err)
		}
	}
}

func (image) used(_ context.Context, dir string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, imageName), &st); err != nil {
		return 0, fmt.Errorf("measure the image: %w", err)
	}
	return st.Blocks * 512, nil
}

// isMount reports whether another file system is mounted on path, a directory
// in dir.
func isMount(dir, path string) (bool, error) {
	var above, at unix.Stat_t
	if err := unix.Lstat(dir, &above); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, &fs.PathError{Op: "look at", Path: dir, Err: err}
	}
	err := unix.Lstat(path, &at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "look at", Path: path, Err: err}
	}
	return at.Dev != above.Dev, nil
}
