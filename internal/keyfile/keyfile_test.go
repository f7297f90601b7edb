package keyfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/keyfile"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	first, err := keyfile.Open(path, "all is lost")
	if err != nil || len(first) != keyfile.Size {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	again, err := keyfile.Open(path, "all is lost")
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("a second time it is another one: %v", err)
	}
	other, err := keyfile.Open(filepath.Join(dir, "other"), "all is lost")
	if err != nil || bytes.Equal(first, other) {
		t.Errorf("another file has the same: %v", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("in the directory: %v, %v", left, err)
	}
	swapped := filepath.Join(dir, "other")
	for _, text := range []string{"one", "two"} {
		if err := keyfile.Replace(swapped, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := keyfile.Read(swapped, 10); err != nil || string(got) != text {
			t.Errorf("replaced by %q it has %q, %v", text, got, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("after that in the directory: %v, %v", left, err)
	}
	if err := keyfile.Make(path, []byte("x")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made over it: %v", err)
	}
	for _, c := range []struct {
		name  string
		spoil func() error
		want  string
	}{
		{"cut off", func() error { return os.Truncate(path, 3) }, "all is lost"},
		{"longer", func() error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 10_000), 0o600) }, "all is lost"},
		{"open to others", func() error { return os.Chmod(path, 0o640) }, "0600"},
		{"a directory", func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "0600"},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := keyfile.Open(path, "all is lost"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
