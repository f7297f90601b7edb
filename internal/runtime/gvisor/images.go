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
	boxes := filepath.Join(dir, boxesName)
	all, err := os.ReadDir(boxes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var paths []string
	for _, e := range all {
		if !ids.IsUID(e.Name()) {
			continue
		}
		rec, err := loadRecord(filepath.Join(boxes, e.Name()), e.Name())
		switch {
		case err == nil:
			paths = append(paths, rec.ImagePath)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errBadRecord):
			return nil, err
		} // else there is no good record: such a one can only be removed
	}
	return paths, nil
}
