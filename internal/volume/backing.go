//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// backing keeps volumes in one way. dir is the volume's own directory; only one
// call at a time is made for it. All but create may be repeated and work on
// what is half made.
type backing interface {
	// create makes an empty volume in dir, which is empty.
	create(ctx context.Context, dir string, size int64) error
	// open makes the volume's tree reachable and returns its path.
	open(dir string) (string, error)
	// close undoes open, when nobody uses the tree.
	close(dir string) error
	// used is how many bytes of the host's disk the volume takes.
	used(ctx context.Context, dir string) (int64, error)
}

// dataName is what sandboxes see of a volume. It is not the top of a file
// system, which has lost+found.
const dataName = "data"

// treeMode lets every user of a sandbox write; on the host a directory above
// keeps others out.
const treeMode = 0o777

// makeTree makes a tree's first directory, or leaves it as it is.
func makeTree(parent, name string, uid, gid int) (string, error) {
	p, err := os.OpenFile(parent, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer p.Close()
	f, err := mkdirAt(p, name, treeMode, uid, gid)
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, name), f.Close()
}

// mkdirAt makes and opens a directory, or opens the one that is there. A link is
// refused. A new one gets its mode and owner before it has its name.
func mkdirAt(parent *os.File, name string, mode uint32, uid, gid int) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, &fs.PathError{Op: "open directory", Path: filepath.Join(parent.Name(), name), Err: err}
		}
		if err := mkdirNew(parent, name, mode, uid, gid); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

func mkdirNew(parent *os.File, name string, mode uint32, uid, gid int) error {
	at := int(parent.Fd())
	tmp := ".new-" + name
	failed := func(err error) error {
		return fmt.Errorf("make directory %s: %w", filepath.Join(parent.Name(), name), err)
	}
	if err := unix.Mkdirat(at, tmp, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err)
	}
	fd, err := unix.Openat(at, tmp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(fd)
	if os.Geteuid() == 0 {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return failed(err)
		}
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return failed(err)
	}
	if err := unix.Renameat2(at, tmp, at, name, unix.RENAME_NOREPLACE); err != nil {
		return failed(err)
	}
	return nil
}

// directory keeps volumes as directories.
type directory struct {
	uid, gid int
	quota    bool
}

func (d directory) create(_ context.Context, dir string, size int64) error {
	if d.quota {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := limitProject(f, size); err != nil {
			return err
		}
	}
	_, err := d.open(dir)
	return err
}

func (d directory) open(dir string) (string, error) { return makeTree(dir, dataName, d.uid, d.gid) }

func (d directory) close(string) error { return nil }

func (d directory) used(ctx context.Context, dir string) (int64, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if d.quota {
		return projectUse(f)
	}
	return diskUse(ctx, f)
}
