package datadir

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestMake: a new data directory can be gone through and not listed, whatever the
// umask; one that is there is its owner's business.
func TestMake(t *testing.T) {
	base := t.TempDir()
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := filepath.Join(base, "above", "data")
	if err := Make(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if m := mode(t, d); m != Mode {
			t.Errorf("%s has mode %v", d, m)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir); err != nil || mode(t, dir) != 0o700 {
		t.Errorf("made again: %v, %v", mode(t, dir), err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{file, filepath.Join(file, "data")} {
		if err := Make(d); err == nil {
			t.Errorf("%s was made", d)
		}
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode().Perm()
}
