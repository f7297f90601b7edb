// Package owner gives each process that runs sandboxes a directory of its own,
// so that terminals and a daemon live side by side in one data directory and
// what a killed process left behind is found by the next one.
//
// An owner is alive as long as it holds the lock in its directory; the kernel
// drops the lock when the process ends, however it ends. A sweep touches only
// directories whose lock is free.
package owner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentbox/internal/datadir"
	"agentbox/internal/ids"
)

const (
	ownersDir = "owners"
	lockFile  = "lock"
	// guardFile is locked for the moments in which a directory exists without
	// a held lock: while one is made or removed, and while a sweep looks for dead
	// ones.
	guardFile = ".guard"
)

// Owner is a held owner directory.
type Owner struct {
	// ID is short, because paths of sockets below Dir are limited to 107 bytes.
	ID   string
	Dir  string
	lock *os.File
}

// New makes an owner directory under dataDir and takes its lock.
func New(dataDir string) (*Owner, error) {
	if err := datadir.Make(dataDir); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	root := filepath.Join(dataDir, ownersDir)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the owners directory: %w", err)
	}
	guard, err := lock(filepath.Join(root, guardFile), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	id := ids.Hex(4)
	dir := Dir(dataDir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the owner's directory: %w", err)
	}
	l, err := lock(filepath.Join(dir, lockFile), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Owner{ID: id, Dir: dir, lock: l}, nil
}

// Dir is where the owner id of dataDir keeps its things.
func Dir(dataDir, id string) string { return filepath.Join(dataDir, ownersDir, id) }

// Release removes the directory, which must hold no sandbox any more, and lets
// go of the lock.
func (o *Owner) Release() error {
	// Who looks for dead ones meanwhile would make the lock's file anew.
	guard, err := lock(filepath.Join(filepath.Dir(o.Dir), guardFile), unix.LOCK_EX)
	if err == nil {
		defer guard.Close()
	}
	return errors.Join(err, os.RemoveAll(o.Dir), o.lock.Close())
}

// Sweep calls reclaim for the directory of each owner that is dead, and removes
// the directory when reclaim succeeds. An error for one does not keep it from
// the others. It returns the ids that are gone.
func Sweep(ctx context.Context, dataDir string, reclaim func(ctx context.Context, id, dir string) error) ([]string, error) {
	dead, err := lockDead(dataDir)
	var gone []string
	for _, o := range dead {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err(), o.lock.Close())
			continue
		}
		if e := reclaim(ctx, o.ID, o.Dir); e != nil {
			err = errors.Join(err, fmt.Errorf("reclaim what owner %s left: %w", o.ID, e), o.lock.Close())
			continue
		}
		err = errors.Join(err, o.Release())
		gone = append(gone, o.ID)
	}
	return gone, err
}

// Live returns the ids of the owners that are alive.
func Live(dataDir string) ([]string, error) {
	root := filepath.Join(dataDir, ownersDir)
	names, guard, err := guarded(root)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	defer guard.Close()
	var live []string
	for _, name := range names {
		l, err := lock(filepath.Join(root, name, lockFile), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			live = append(live, name)
		case err == nil:
			l.Close()
		}
	}
	return live, nil
}

// lockDead takes the lock of every owner that is dead.
func lockDead(dataDir string) ([]*Owner, error) {
	root := filepath.Join(dataDir, ownersDir)
	names, guard, err := guarded(root)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	defer guard.Close()
	var dead []*Owner
	var errs error
	for _, name := range names {
		dir := filepath.Join(root, name)
		l, err := lock(filepath.Join(dir, lockFile), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			dead = append(dead, &Owner{ID: name, Dir: dir, lock: l})
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, fs.ErrNotExist):
		default:
			errs = errors.Join(errs, err)
		}
	}
	return dead, errs
}

// guarded lists the owners and takes the guard; there is none without owners.
func guarded(root string) (names []string, guard *os.File, err error) {
	if names, err = list(root); err != nil || len(names) == 0 {
		return nil, nil, err
	}
	guard, err = lock(filepath.Join(root, guardFile), unix.LOCK_EX)
	return names, guard, err
}

func list(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// lock opens path, making it if needed, and locks it. The directory must exist.
func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
