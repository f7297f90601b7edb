package mint

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// keySize of the secret: as much as the hash that everything is derived with.
const keySize = 32

// Open reads the secret from a file, which is made with mode 0600 when it is not
// there. Whoever has it can make certificates that this daemon's sandboxes trust.
func Open(path string) (*Mint, error) {
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err == nil || errors.Is(err, fs.ErrExist) {
			key, err = readKey(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the key of interception: %w", err)
	}
	return New(key), nil
}

func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if i.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s: others than its owner may use it (mode %04o): make it 0600", path, i.Mode().Perm())
	}
	key, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s has %d bytes, not %d: remove it, and sandboxes get other authorities when they start anew", path, len(key), keySize)
	}
	return key, err
}

// makeKey writes a new file, whole or not at all.
func makeKey(path string) error {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // it does not fail
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path) // a file that came meanwhile stays
}
