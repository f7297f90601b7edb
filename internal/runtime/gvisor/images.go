package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"agentbox/internal/ids"
)

// ImagesOf returns the paths of the root file systems of all sandboxes in a
// back end's directory, whether or not a process has it open now.
func ImagesOf(dir string) ([]string, error) {
	var paths []string
	err := eachRecord(dir, func(rec *record) { paths = append(paths, rec.ImagePath) })
	return paths, err
}

// Running returns the pids of the processes of all sandboxes in a back end's
// directory, whether or not a process has it open now.
func Running(dir string) ([]int, error) {
	var pids []int
	err := eachRecord(dir, func(rec *record) {
		if p, err := hold(rec.Process); err == nil {
			pids = append(pids, p.id.Pid)
			p.fd.Close()
		}
	})
	return pids, err
}

// eachRecord reads the good records in a back end's directory. A sandbox that has
// none can only be removed.
func eachRecord(dir string, f func(*record)) error {
	boxes := filepath.Join(dir, boxesName)
	all, err := os.ReadDir(boxes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, e := range all {
		if !ids.IsUID(e.Name()) {
			continue
		}
		rec, err := loadRecord(filepath.Join(boxes, e.Name()), e.Name())
		switch {
		case err == nil:
			f(&rec)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errBadRecord):
			return err
		}
	}
	return nil
}
