package image_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
)

func TestDamagedFilesAreMadeAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	img := importTar(t, s, "x", rootTar(t, [2]string{"f", strings.Repeat("x", 10_000)}))
	want, err := os.ReadFile(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"gone": func() error { return os.Remove(img.Path) },
		"cut":  func() error { return os.Truncate(img.Path, img.Size-4096) },
		"zero": func() error { return os.WriteFile(img.Path, make([]byte, img.Size), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), "x"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(img.Path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the new file differs: %v", name, err)
		}
	}
	t.Run("source", func(t *testing.T) {
		sources, err := filepath.Glob(filepath.Join(dir, "sources", "*"))
		if err != nil || len(sources) != 1 {
			t.Fatal(sources, err)
		}
		if err := os.Truncate(sources[0], 50); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(img.Path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), "x"); !errdefs.IsDataLoss(err) {
			t.Errorf("resolved half a source: %v", err)
		}
		if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
		importTar(t, s, "x", rootTar(t, [2]string{"f", strings.Repeat("x", 10_000)}))
		if got, err := os.ReadFile(img.Path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("importing it again gave another file: %v", err)
		}
	})
}

func TestDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	good := importTar(t, s, "good", rootTar(t, [2]string{"f", "1"}))
	for name, text := range map[string]string{"half": `{"name":`, "bad-digest": `{"name":"bad-digest","digest":"sha256:../../x"}`, "other": `{"name":"good","digest":"` + good.Digest + `"}`} {
		if err := os.WriteFile(filepath.Join(dir, "names", name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), name); !errdefs.IsDataLoss(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, err := s.List()
	if len(all) != 1 || all[0].Name != "good" || !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "half") {
		t.Errorf("List = %v, %v", all, err)
	}
	for _, name := range []string{"half", "bad-digest", "other"} {
		if err := s.Remove(name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if img, err := s.Resolve(t.Context(), "good"); err != nil || img.Path != good.Path {
		t.Errorf("resolved %+v, %v", img, err)
	}
}

// What a killed process left is removed, what a running one has is not.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	left := filepath.Join(dir, "tmp", "left", "deep")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tmp", "half"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	r, w := io.Pipe()
	go func() { // an import that runs meanwhile
		defer close(hold)
		if _, err := s.ImportTar(context.Background(), "x", r, image.Config{}); err != nil {
			t.Error(err)
		}
	}()
	data := rootTar(t, [2]string{"f", "1"})
	if _, err := w.Write(data[:512]); err != nil { // it has its file then
		t.Fatal(err)
	}
	open(t, dir, agent(t, "1"))
	if got := files(t, dir); len(got) != 1 || !strings.HasPrefix(got[0], "tmp/") {
		t.Errorf("left are %v", got)
	}
	if _, err := w.Write(data[512:]); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-hold
	if _, err := s.Resolve(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
