package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentbox/internal/ids"

	"golang.org/x/sys/unix"
)

// tempFile makes a locked file in tmp. Whoever publishes it does so before
// closing it, and so keeps others from taking it for unused.
func (s *Store) tempFile(ctx context.Context) (*os.File, error) {
	return s.temp(ctx, func(path string) (*os.File, error) {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
	})
}

// tempDir makes a locked directory in tmp. Its owner removes and closes it.
func (s *Store) tempDir(ctx context.Context) (*os.File, error) {
	return s.temp(ctx, func(path string) (*os.File, error) {
		if err := os.Mkdir(path, 0o755); err != nil {
			return nil, err
		}
		return os.Open(path)
	})
}

// temp makes and locks something in tmp while no sweep can come between.
func (s *Store) temp(ctx context.Context, create func(path string) (*os.File, error)) (*os.File, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := create(filepath.Join(s.dir, tmpDir, ids.Hex(8)))
	if err != nil {
		return nil, fmt.Errorf("make temporary file: %w", err)
	}
	if _, err := tryLock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// discard closes a temporary file and removes it, if it was not published.
func discard(f *os.File) error {
	var err error
	if same, _ := isAt(f, f.Name()); same {
		err = removeTree(f.Name())
	}
	return errors.Join(err, f.Close())
}
