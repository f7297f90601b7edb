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
		// One without a good record can only be removed.
		if rec, err := loadRecord(filepath.Join(boxes, e.Name()), e.Name()); err == nil {
			paths = append(paths, rec.ImagePath)
		}
	}
	return paths, nil
}
