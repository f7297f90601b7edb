package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Locks are flock(2) locks: they belong to an open file, so they exclude other
// processes as well as other goroutines, and the kernel drops them when their
// holder dies.

// pollLock is how often a lock is asked for that somebody else holds. flock can
// wait by itself, but a wait in the kernel can't be canceled.
const pollLock = 100 * time.Millisecond

// tryLock asks for a lock, unix.LOCK_SH or unix.LOCK_EX, without waiting.
func tryLock(f *os.File, how int) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// waitLock asks for a lock until it has it. waiting is called before each wait.
func waitLock(ctx context.Context, f *os.File, how int, waiting func()) error {
	for {
		ok, err := tryLock(f, how)
		if ok || err != nil {
			return err
		}
		waiting()
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock %s: %w", f.Name(), context.Cause(ctx))
		case <-time.After(pollLock):
		}
	}
}

// openLock opens the lock file path, and makes it if need be, and waits for the
// lock.
func openLock(ctx context.Context, path string, waiting func(*os.File)) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := waitLock(ctx, f, unix.LOCK_EX, func() { waiting(f) }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openShared opens path and takes a shared lock on it. It tries again when
// somebody removed or replaced the file in between. A file that is not there is
// fs.ErrNotExist.
func openShared(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if err := waitLock(ctx, f, unix.LOCK_SH, func() {}); err != nil {
			f.Close()
			return nil, err
		}
		if same, err := isAt(f, path); same || err != nil {
			return f, err
		}
		f.Close()
	}
}

// isAt reports whether f is the file at path.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}
