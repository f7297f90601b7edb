package transfer

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// UnpackFile writes the one regular file of the tar stream r to path, whatever
// its name is in there. What is at path stays until all of the new file has
// come. maxBytes 0: DefaultBytes.
func UnpackFile(r io.Reader, path string, maxBytes int64) error {
	if maxBytes == 0 {
		maxBytes = DefaultBytes
	}
	tr := tar.NewReader(r)
	h, err := tr.Next()
	if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
		return fmt.Errorf("read the sandbox's archive: %w", err)
	}
	if h.Typeflag != tar.TypeReg || sparse(h) {
		return fmt.Errorf("%s is no regular file", shown(h.Name))
	}
	if h.Size > maxBytes {
		return fmt.Errorf("%w: %s has %d bytes", ErrBounds, shown(h.Name), h.Size)
	}
	// Not by CreateTemp and Chmod: the caller's umask holds for what a guest chose.
	temp := filepath.Join(filepath.Dir(path), ".agentbox-"+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm()|0o600)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // the temporary name says nothing to anybody
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // when it was not renamed
	_, err = io.Copy(f, tr)
	if err == nil {
		_, err = tr.Next() // to the end: an archive that breaks off is no file
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
