package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

// Whoever wants to remove the directory is told of an image in the making, and
// finds nothing of one whose maker was killed.
func TestIdle(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Agent{})
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, tmpDir, "left")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := s.tempDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Idle(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("while an image is made: %v", err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed process left is still there: %v", err)
	}
	if err := discard(made); err != nil {
		t.Fatal(err)
	}
	if err := s.Idle(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
