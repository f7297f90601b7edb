package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"agentbox/internal/image"
	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent makes a program that stands for the guest agent.
func agent(t *testing.T, build string) image.Agent {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(path, []byte("agent "+build), 0o755); err != nil {
		t.Fatal(err)
	}
	return image.Agent{Path: path, Build: build}
}

func open(t *testing.T, dir string, a image.Agent) *image.Store {
	t.Helper()
	s, err := image.Open(dir, a)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rootTar makes a tar of regular files; names that end in a slash are
// directories, contents that begin with "->" symbolic links.
func rootTar(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o644, Size: int64(len(f[1])), ModTime: time.Unix(1e9, 0)}
		if target, ok := strings.CutPrefix(f[1], "->"); ok {
			h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, target
		} else if strings.HasSuffix(f[0], "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, f[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func importTar(t *testing.T, s *image.Store, name string, data []byte) image.Image {
	t.Helper()
	img, err := s.ImportTar(t.Context(), name, bytes.NewReader(data), image.Config{User: "user", Workdir: "/workspace", Env: []string{"A=1"}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// files lists what a store holds, locks and empty directories aside.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	for _, sub := range []string{"names", "sources", "blobs", "partial", "erofs", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, sub+"/"+e.Name())
		}
	}
	return all
}

func TestImportResolveListRemove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	_, err := s.Resolve(t.Context(), "mine")
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "agentbox images build mine") {
		t.Errorf("before the import: %v", err)
	}
	img := importTar(t, s, "mine", rootTar(t, [2]string{"etc/", ""}, [2]string{"etc/passwd", "root:x:0:0::/root:/bin/sh\n"}))
	if img.Name != "mine" || !strings.HasPrefix(img.Digest, "sha256:") || len(img.Digest) != 71 || img.Config.User != "user" || time.Since(img.Created) > time.Hour {
		t.Errorf("imported %+v", img)
	}
	if st, err := os.Stat(img.Path); err != nil || st.Size() != img.Size || !filepath.IsAbs(img.Path) {
		t.Errorf("file of %+v: %v", img, err)
	}
	again, err := open(t, dir, agent(t, "1")).Resolve(t.Context(), "mine")
	if err != nil || again.Path != img.Path || again.Digest != img.Digest {
		t.Errorf("resolved %+v, %v, want %+v", again, err, img)
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Path != img.Path || all[0].Size != img.Size {
		t.Errorf("List = %+v, %v", all, err)
	}
	if u, err := s.DiskUsage(); err != nil || u.EROFS < img.Size/2 || u.Sources == 0 || u.Total() < u.EROFS+u.Sources {
		t.Errorf("DiskUsage = %+v, %v", u, err)
	}
	if err := s.Remove("mine"); err != nil {
		t.Error(err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("removing left %v", left)
	}
	if err := s.Remove("mine"); !errdefs.IsNotFound(err) {
		t.Errorf("removing again: %v", err)
	}
}

func TestNames(t *testing.T) {
	s := open(t, t.TempDir(), agent(t, "1"))
	for _, name := range []string{"", ".", "..", "../x", "a/b", "-rf", ".hidden", "a b", "a\x00", strings.Repeat("a", 129), "a\n"} {
		if _, err := s.ImportTar(t.Context(), name, strings.NewReader(""), image.Config{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("import %q: %v", name, err)
		}
		missing := errdefs.IsInvalidArgument
		if _, err := oci.ParseRef(name); err == nil { // no name for an image made here, but one to pull
			missing = errdefs.IsNotFound
		}
		if _, err := s.Resolve(t.Context(), name); !missing(err) {
			t.Errorf("resolve %q: %v", name, err)
		}
		if _, err := s.Build(t.Context(), name, image.BuildOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("build %q: %v", name, err)
		}
		if err := s.Remove(name); !missing(err) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
}

// A tar that makes no image leaves nothing, and what had the name stays.
func TestBadImportChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	good := importTar(t, s, "x", rootTar(t, [2]string{"f", "1"}))
	before := files(t, dir)
	for name, r := range map[string]io.Reader{
		"garbage":   strings.NewReader(strings.Repeat("garbage ", 1000)),
		"cut off":   bytes.NewReader(rootTar(t, [2]string{"f", strings.Repeat("x", 9000)})[:4000]),
		"a bad one": bytes.NewReader(rootTar(t, [2]string{"f", "1"}, [2]string{"f/g", "2"})),
		"broken":    iotest.ErrReader(fmt.Errorf("the net: %w", errdefs.ErrUnavailable)),
	} {
		_, err := s.ImportTar(t.Context(), "x", r, image.Config{})
		if name == "broken" && !errdefs.IsUnavailable(err) || name != "broken" && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if img, err := s.Resolve(t.Context(), "x"); err != nil || img.Digest != good.Digest {
		t.Errorf("resolved %+v, %v", img, err)
	}
	// The tars that were refused belong to nobody now.
	importTar(t, s, "x", rootTar(t, [2]string{"f", "1"}))
	if after := files(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("there is\n%v\nbefore\n%v", after, before)
	}
}

func TestAcquireKeepsAnImage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	importTar(t, s, "x", rootTar(t, [2]string{"f", "1"}))
	other := open(t, dir, agent(t, "2")) // another process, of another version
	img, release, err := s.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Remove("x"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "used by a sandbox") {
		t.Errorf("remove while it is used: %v", err)
	}
	// A new image takes the name; the file stays while it is used.
	importTar(t, other, "x", rootTar(t, [2]string{"f", "2"}))
	if _, err := os.Stat(img.Path); err != nil {
		t.Errorf("the used file is gone: %v", err)
	}
	release()
	release()
	if err := other.Remove("x"); err != nil {
		t.Error(err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// Another process goes on keeping what one that is gone had acquired.
func TestHold(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	importTar(t, s, "x", rootTar(t, [2]string{"f", "1"}))
	img, release, err := s.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	release()
	other := open(t, dir, agent(t, "2"))
	release, err = other.Hold(t.Context(), img.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("remove while it is held: %v", err)
	}
	release()
	release()
	moved := filepath.Join(t.TempDir(), "moved") // and back: the path was recorded before
	for _, way := range [][2]string{{dir, moved}, {moved, dir}} {
		if err := os.Rename(way[0], way[1]); err != nil {
			t.Fatal(err)
		}
		if release, err = open(t, way[1], agent(t, "2")).Hold(t.Context(), img.Path); err != nil {
			t.Errorf("hold after the store was moved: %v", err)
		} else {
			release()
		}
	}
	if err := s.Remove("x"); err != nil {
		t.Error(err)
	}
	if _, err := other.Hold(t.Context(), img.Path); !errdefs.IsNotFound(err) {
		t.Errorf("hold what is gone: %v", err)
	}
	if _, err := other.Hold(t.Context(), "/etc/passwd"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("hold another file: %v", err)
	}
}

func TestTwoNamesOfOneImage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	data := rootTar(t, [2]string{"f", "1"})
	importTar(t, s, "a", data)
	b := importTar(t, s, "b", data)
	_, release, err := s.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.Remove("a"); err != nil {
		t.Errorf("remove one of two names: %v", err)
	}
	if img, err := s.Resolve(t.Context(), "b"); err != nil || img.Path != b.Path {
		t.Errorf("resolved %+v, %v", img, err)
	}
}

// A new agent needs no new tar, and the old agent's file is kept for a while.
func TestNewAgent(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, agent(t, "1")), open(t, dir, agent(t, "2"))
	a := importTar(t, one, "x", rootTar(t, [2]string{"f", "1"}))
	if all, err := two.List(); err != nil || len(all) != 1 || all[0].Path != "" || all[0].Size == 0 {
		t.Errorf("List before the first use = %+v, %v", all, err)
	}
	b, err := two.Resolve(t.Context(), "x")
	if err != nil || b.Path == a.Path || b.Digest != a.Digest {
		t.Fatalf("resolved %+v, %v", b, err)
	}
	img, err := os.ReadFile(b.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(img, []byte("agent 2")) || bytes.Contains(img, []byte("agent 1")) {
		t.Error("the image has not the agent that it should have")
	}
	importTar(t, two, "y", rootTar(t, [2]string{"f", "2"}))
	if _, err := os.Stat(a.Path); err != nil {
		t.Errorf("the old agent's file is gone: %v", err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(a.Path, old, old); err != nil {
		t.Fatal(err)
	}
	importTar(t, two, "y", rootTar(t, [2]string{"f", "2"}))
	if _, err := os.Stat(a.Path); !os.IsNotExist(err) {
		t.Errorf("the old agent's file is still there: %v", err)
	}
	if _, err := os.Stat(b.Path); err != nil {
		t.Errorf("the current file is gone: %v", err)
	}
}

// Many users at once, while the image is removed and made again.
func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	data := rootTar(t, [2]string{"f", strings.Repeat("x", 100_000)})
	a := agent(t, "1")
	var wg sync.WaitGroup
	for i := range 8 {
		s := open(t, dir, a)
		wg.Go(func() {
			for range 10 {
				if i < 2 {
					if _, err := s.ImportTar(t.Context(), "x", bytes.NewReader(data), image.Config{}); err != nil {
						t.Error(err)
					}
					if err := s.Remove("x"); err != nil && !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotFound(err) {
						t.Error(err)
					}
					continue
				}
				img, release, err := s.Acquire(t.Context(), "x")
				if errdefs.IsNotFound(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				if _, err := os.Stat(img.Path); err != nil {
					t.Errorf("an acquired image is gone: %v", err)
				}
				release()
			}
		})
	}
	wg.Wait()
}

func TestCanceled(t *testing.T) {
	s := open(t, t.TempDir(), agent(t, "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ImportTar(ctx, "x", bytes.NewReader(rootTar(t, [2]string{"f", "1"})), image.Config{}); !errdefs.IsCanceled(err) {
		t.Errorf("got error %v", err)
	}
}
