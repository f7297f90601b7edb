package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	if _, err := s.LoadDir(t.Context(), layoutOf(t, map[string]mutate.Appendable{"a:1": twoLayers(t, compression.GZip)}), image.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	importTar(t, s, "mine", rootTar(t, [2]string{"f", "1"}))
	img, release, err := s.Acquire(t.Context(), "a:1")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := os.WriteFile(filepath.Join(dir, "partial", strings.Repeat("0", 64)), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := s.Prune(t.Context(), false)
	if err != nil || len(done.Images) > 0 || done.Freed < 1<<20 {
		t.Errorf("pruned %+v, %v", done, err)
	}
	done, err = s.Prune(t.Context(), true)
	if err != nil || !slices.Equal(done.Images, []string{"mine"}) {
		t.Errorf("pruned all: %+v, %v", done, err)
	}
	checkTwoLayers(t, img) // is in use, so everything of it is there
	release()
	if done, err = s.Prune(t.Context(), true); err != nil || !slices.Equal(done.Images, []string{"a:1"}) {
		t.Errorf("pruned what was used: %+v, %v", done, err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("pruning left %v", left)
	}
}

// TestPruneKeepsWhatIsNeeded: a sandbox that is stopped needs its root file system,
// though no program has it open.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	importTar(t, s, "a", rootTar(t, [2]string{"f", "1"}))
	importTar(t, s, "b", rootTar(t, [2]string{"f", "2"}))
	img, release, err := s.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	release()
	s = open(t, dir, agent(t, "2")) // another build, for which the file would be made anew
	fails := errors.New("no right to look")
	s.KeepFor(func() ([]string, error) { return nil, fails })
	if _, err := s.Prune(t.Context(), true); !errors.Is(err, fails) {
		t.Errorf("without knowing what is needed: %v", err)
	}
	s.KeepFor(func() ([]string, error) { return []string{img.Path}, nil })
	if done, err := s.Prune(t.Context(), true); err != nil || !slices.Equal(done.Images, []string{"b"}) {
		t.Errorf("pruned %+v, %v", done, err)
	}
	if err := s.Remove("a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removed what is needed: %v", err)
	}
	release, err = s.Hold(t.Context(), img.Path)
	if err != nil {
		t.Fatalf("it is gone: %v", err)
	}
	release()
	s.KeepFor(func() ([]string, error) { return nil, nil })
	if _, err := s.Prune(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(t.Context(), img.Path); !errdefs.IsNotFound(err) {
		t.Errorf("what nobody needs any more: %v", err)
	}
}
