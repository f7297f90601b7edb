// Package keyfile keeps secrets of the daemon in files that only its user can
// read.
package keyfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Size of the keys that [Open] draws, in bytes: as much as any hash or cipher of
// ours takes.
const Size = 32

// Open reads a key of Size random bytes, which is drawn when the file is not there.
// lost says what becomes of things without it, for who removes a damaged file.
func Open(path, lost string) ([]byte, error) {
	key, err := Read(path, Size)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, Size)
		_, _ = rand.Read(fresh) // never fails: crypto/rand ends the program instead
		if err = Make(path, fresh); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = Read(path, Size)
		}
	}
	if err == nil && len(key) != Size {
		err = fmt.Errorf("%s has %d bytes, not %d: remove it, and %s: %w", path, len(key), Size, lost, errdefs.ErrDataLoss)
	}
	return key, err
}

// Read reads a file that nobody but its owner can use, one byte beyond most at the
// most. It may be empty.
func Read(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others than its owner may use it (mode %v): make it 0600: %w", path, fi.Mode(), errdefs.ErrFailedPrecondition)
	}
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// Make writes a new file, which after a crash is whole or not there. fs.ErrExist:
// one that is there stays as it is.
func Make(path string, text []byte) error {
	return write(path, text, os.Link) // unlike a rename it replaces nothing
}

// Replace writes a file in the place of one that may be there. After a crash it has
// its old or its new text.
func Replace(path string, text []byte) error { return write(path, text, os.Rename) }

func write(path string, text []byte, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after a rename it is not there
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
