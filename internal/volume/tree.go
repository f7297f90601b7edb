//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"agentbox/internal/ids"
)

const (
	// batch is how many names of a directory are held at a time.
	batch = 512
	// maxDepth bounds how many directories are open at once. What lies deeper is
	// left out of an archive; removing moves it up first.
	maxDepth = 200
)

// openDir opens a directory in dir without following a link or waiting.
func openDir(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// statAt looks at name itself, not at what it may link to.
func statAt(dir *os.File, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return st, &fs.PathError{Op: "look at", Path: name, Err: err}
	}
	return st, nil
}

// eachName calls f with every name in dir, in no order, until f fails.
func eachName(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// removeTree removes name in dir and all below, if it is there. It follows no
// link, enters no other file system, and takes a tree of any depth with a
// bounded number of open files.
func removeTree(dir *os.File, name string) error {
	gone, err := unlink(dir, name)
	if gone || err != nil {
		return err
	}
	above, err := statAt(dir, ".")
	if err != nil {
		return err
	}
	top, err := openToRemove(dir, name)
	if err != nil {
		return err
	}
	defer top.Close()
	r := remover{top: top, dev: above.Dev}
	if err := r.empty(top, 1); err != nil {
		return err
	}
	return rmdir(dir, name)
}

type remover struct {
	top *os.File
	dev uint64
}

// empty removes all in dir, which lies depth directories deep.
func (r *remover) empty(dir *os.File, depth int) error {
	st, err := statAt(dir, ".")
	if err != nil {
		return err
	}
	if st.Dev != r.dev {
		return fmt.Errorf("remove %q: another file system is mounted there", dir.Name())
	}
	for {
		// From the start each time: what was moved up must be found, too.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, name := range names {
			if err := r.remove(dir, name, depth); err != nil {
				return err
			}
		}
	}
}

func (r *remover) remove(dir *os.File, name string, depth int) error {
	gone, err := unlink(dir, name)
	if gone || err != nil {
		return err
	}
	sub, err := openToRemove(dir, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if depth >= maxDepth {
		up := ".agentbox-" + ids.Hex(16)
		if err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), up, unix.RENAME_NOREPLACE); err != nil {
			return &fs.PathError{Op: "move", Path: name, Err: err}
		}
		return nil
	}
	if err := r.empty(sub, depth+1); err != nil {
		return err
	}
	return rmdir(dir, name)
}

// unlink removes what is no directory, and reports whether name is gone.
func unlink(dir *os.File, name string) (gone bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM): // POSIX's word for a directory
		return false, nil
	}
	return false, &fs.PathError{Op: "remove", Path: name, Err: err}
}

func rmdir(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// openToRemove opens a directory to which its guest may have given a mode that
// keeps its owner, this process's user, out.
func openToRemove(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if os.Geteuid() != 0 {
		if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700); err != nil {
			return nil, err
		}
	}
	return openDir(dir, name)
}

// diskUse adds up what the files below dir take of the disk. Names of one file
// count once each: a sum that is too high is no harm.
func diskUse(ctx context.Context, dir *os.File) (int64, error) {
	var sum int64
	top, err := openDir(dir, ".")
	if err != nil {
		return 0, err
	}
	defer top.Close()
	err = addUse(ctx, top, 1, &sum)
	return sum, err
}

func addUse(ctx context.Context, dir *os.File, depth int, sum *int64) error {
	return eachName(dir, func(name string) error {
		st, err := statAt(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		*sum += st.Blocks * 512
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth >= maxDepth {
			return ctx.Err()
		}
		sub, err := openDir(dir, name)
		if err != nil {
			return ctx.Err() // it was changed meanwhile, or its mode keeps us out
		}
		defer sub.Close()
		return addUse(ctx, sub, depth+1, sum)
	})
}
