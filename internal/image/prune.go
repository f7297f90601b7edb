package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// grace is how long an EROFS file for another agent stays after its last use, so
// that two builds of agentbox that take turns need not make it each time, and how
// long a part of a blob waits for its rest.
const grace = 24 * time.Hour

// KeepFor names root file systems that are needed though nobody holds them, by
// their paths, whenever something is about to be removed: those of sandboxes that
// are stopped while no program has them open. If it fails nothing is removed.
func (s *Store) KeepFor(needed func() ([]string, error)) { s.needed = needed }

// neededNames are the names of the files that KeepFor tells of.
func (s *Store) neededNames() (map[string]bool, error) {
	names := map[string]bool{}
	if s.needed == nil {
		return names, nil
	}
	paths, err := s.needed()
	if err != nil {
		return nil, fmt.Errorf("find what sandboxes need: %w", err)
	}
	for _, p := range paths {
		names[filepath.Base(p)] = true
	}
	return names, nil
}

// inUse reports whether somebody holds a file of the image, or one of the needed
// files is its.
func (s *Store) inUse(key string, needed map[string]bool) (bool, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, erofsDir, key+"-*"+erofsExt))
	if err != nil {
		return false, err
	}
	for _, path := range files {
		if needed[filepath.Base(path)] {
			return true, nil
		}
		free, err := ifFree(path, func() error { return nil })
		if err != nil || !free {
			return err == nil, err
		}
	}
	return false, nil
}

// prune removes files that no record or sandbox needs and nobody holds, and those that only
// may be needed when they are older than keep. The store's lock is held. If a
// record can't be read, nothing is removed.
func (s *Store) prune(keep time.Duration) error {
	records, err := s.records()
	if err != nil {
		return fmt.Errorf("remove unused files: %w", err)
	}
	needed, err := s.neededNames()
	if err != nil {
		return err
	}
	roots, blobs := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		roots[r.key()] = true
		for _, d := range r.blobs() {
			blobs[digestHex(d)] = true
		}
	}
	current := s.layoutSuffix()
	stale := func(name string, info fs.FileInfo) bool {
		key, _, _ := strings.Cut(name, "-")
		if needed[name] {
			return false
		}
		return !roots[key] || !strings.HasSuffix(name, current) && time.Since(info.ModTime()) > keep
	}
	unknown := func(name string, _ fs.FileInfo) bool { return !blobs[strings.TrimSuffix(name, sourceExt)] }
	old := func(_ string, info fs.FileInfo) bool { return time.Since(info.ModTime()) > keep }
	return errors.Join(
		removeFree(filepath.Join(s.dir, erofsDir), stale),
		removeFree(filepath.Join(s.dir, sourcesDir), unknown),
		removeFree(filepath.Join(s.dir, blobsDir), unknown),
		removeFree(filepath.Join(s.dir, partialDir), old))
}

// removeFree removes the files of dir that are unwanted and not locked.
func removeFree(dir string, unwanted func(string, fs.FileInfo) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove unused files: %w", err)
	}
	var errs error
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !unwanted(e.Name(), info) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err == nil {
			_, err = ifFree(path, func() error { return removeTree(path) })
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("remove unused file: %w", err))
		}
	}
	return errs
}

// ifFree calls f with the file or directory at path locked, if nobody else
// holds it.
func ifFree(path string, f func() error) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	free, err := tryLock(file, unix.LOCK_EX)
	if !free || err != nil {
		return false, err
	}
	return true, f()
}

// removeTree removes path. Nothing outside is touched: what is mounted below it
// is detached first.
func removeTree(path string) error {
	if err := detachMounts(path); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// sweep removes what killed processes left in tmp.
func (s *Store) sweep() error {
	l, err := s.tryStoreLock()
	if l == nil {
		return err // busy: the next one sweeps
	}
	defer l.Close()
	return removeFree(filepath.Join(s.dir, tmpDir), func(string, fs.FileInfo) bool { return true })
}

// Idle makes sure that the store's directory can be removed: it detaches and
// removes what killed processes left half made, and is FailedPrecondition while
// another process makes an image.
func (s *Store) Idle(ctx context.Context) error {
	l, err := s.lock(ctx)
	if err != nil {
		return fmt.Errorf("look for unfinished images: %w", err)
	}
	defer l.Close()
	tmp := filepath.Join(s.dir, tmpDir)
	if err := removeFree(tmp, func(string, fs.FileInfo) bool { return true }); err != nil {
		return err
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		return fmt.Errorf("look for unfinished images: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("another process makes an image: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// tryStoreLock takes the store's lock if it is free.
func (s *Store) tryStoreLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if ok, err := tryLock(f, unix.LOCK_EX); !ok || err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Pruned tells what Prune did.
type Pruned struct {
	Images []string // removed, by name
	Freed  int64    // bytes on the disk
}

// Prune removes what no image needs: files for other builds of the agent, what
// is left of removed images, downloads that were cut. With all it also removes
// the images that no sandbox uses. Nothing is removed that a sandbox or another
// process uses.
func (s *Store) Prune(ctx context.Context, all bool) (Pruned, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return Pruned{}, fmt.Errorf("prune images: %w", err)
	}
	defer l.Close()
	before, err := s.DiskUsage()
	if err != nil {
		return Pruned{}, err
	}
	var done Pruned
	if all {
		if done.Images, err = s.removeUnused(); err != nil {
			return done, err
		}
	}
	if err := s.prune(0); err != nil {
		return done, err
	}
	after, err := s.DiskUsage()
	done.Freed = max(0, before.Total()-after.Total())
	return done, err
}

// removeUnused removes the records of images that nobody uses. The store's lock
// is held.
func (s *Store) removeUnused() (names []string, err error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	needed, err := s.neededNames()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		busy, err := s.inUse(r.key(), needed)
		if err == nil && !busy {
			err = os.Remove(s.recordPath(r.Name))
		}
		if err != nil {
			return names, fmt.Errorf("remove image %q: %w", r.Name, err)
		}
		if !busy {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// Usage is the disk space that a store takes, in bytes as allocated.
type Usage struct {
	Sources   int64 // compressed tars and layers, manifests and configurations
	EROFS     int64 // files that sandboxes use
	Temporary int64 // of operations that run, and downloads that were cut
}

// Total is the sum.
func (u Usage) Total() int64 { return u.Sources + u.EROFS + u.Temporary }

// DiskUsage measures the store.
func (s *Store) DiskUsage() (Usage, error) {
	var u Usage
	for dir, sum := range map[string]*int64{
		sourcesDir: &u.Sources, blobsDir: &u.Sources, erofsDir: &u.EROFS, tmpDir: &u.Temporary, partialDir: &u.Temporary,
	} {
		err := filepath.WalkDir(filepath.Join(s.dir, dir), func(path string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(path, &st)
			}
			*sum += st.Blocks * 512 // unit of st_blocks
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed just now
			}
			return err
		})
		if err != nil {
			return Usage{}, fmt.Errorf("measure image store: %w", err)
		}
	}
	return u, nil
}
