// Package datadir makes the data directory, the same way for every program that
// may be the first to need it.
package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Mode of a data directory, whatever the umask: everybody may go through it, since
// sandboxes, which run as users of their own, have volumes in it, and apt as
// another one has images; nobody else may list it. What is private in it is so by
// its own mode.
const Mode fs.FileMode = 0o711

// Make makes dir, and what is missing above it. One that is there stays as it is.
func Make(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	switch {
	case err == nil && !fi.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("there is a file in its place")}
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := Make(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, Mode); err != nil {
		if errors.Is(err, fs.ErrExist) { // another process was faster
			return nil
		}
		return err
	}
	return os.Chmod(dir, Mode)
}
