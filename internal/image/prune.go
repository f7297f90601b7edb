package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// keepUnused is how long an EROFS file for another agent stays after its last
// use: two builds of agentbox that take turns need not make it each time.
const keepUnused = 24 * time.Hour

// inUse reports whether somebody holds a file of the image.
func (s *Store) inUse(digest string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, erofsDir, digestHex(digest)+"-*"+erofsExt))
	if err != nil {
		return false, err
	}
	for _, path := range files {
		free, err := ifFree(path, func() error { return nil })
		if err != nil || !free {
			return err == nil, err
		}
	}
	return false, nil
}

// prune removes tars and EROFS files that no record needs and nobody holds. The
// store's lock is held. If a record can't be read, nothing is removed.
func (s *Store) prune() error {
	records, err := s.records()
	if err != nil {
		return fmt.Errorf("remove unused files: %w", err)
	}
	needed := map[string]bool{}
	for _, r := range records {
		needed[digestHex(r.Digest)] = true
	}
	current := s.layoutSuffix()
	stale := func(name string, info fs.FileInfo) bool {
		digest, _, _ := strings.Cut(name, "-")
		return !needed[digest] || !strings.HasSuffix(name, current) && time.Since(info.ModTime()) > keepUnused
	}
	unknown := func(name string, _ fs.FileInfo) bool { return !needed[strings.TrimSuffix(name, sourceExt)] }
	return errors.Join(
		removeFree(filepath.Join(s.dir, erofsDir), stale),
		removeFree(filepath.Join(s.dir, sourcesDir), unknown))
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

// Usage is the disk space that a store takes, in bytes as allocated.
type Usage struct {
	Sources   int64 // compressed tars
	EROFS     int64 // files that sandboxes use
	Temporary int64 // of operations that run
}

// Total is the sum.
func (u Usage) Total() int64 { return u.Sources + u.EROFS + u.Temporary }

// DiskUsage measures the store.
func (s *Store) DiskUsage() (Usage, error) {
	var u Usage
	for dir, sum := range map[string]*int64{sourcesDir: &u.Sources, erofsDir: &u.EROFS, tmpDir: &u.Temporary} {
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
