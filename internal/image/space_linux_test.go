package image_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// smallDisk is a directory with a disk of its own, of that size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// wantFull checks that an error says what there is to know of a full disk, once,
// and that nothing is left of what failed.
func wantFull(t *testing.T, dir string, err error) {
	t.Helper()
	if !errdefs.IsResourceExhausted(err) {
		t.Fatalf("the error is %v", err)
	}
	for _, say := range []string{"agentbox images prune", "--data-dir"} {
		if strings.Count(err.Error(), say) != 1 {
			t.Errorf("%q does not say %q once", err, say)
		}
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// squeezable are n bytes that compress well, and are no zeros, which take no
// disk.
func squeezable(n int) string { return strings.Repeat("agentbox ", n/9) }

// What can't fit is refused before anything is fetched or written.
func TestNoRoomForPull(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "a:1", img)
	dir := smallDisk(t, "4m") // the layer alone would fit
	s := open(t, dir, agent(t, "1"))
	r.set(nil)
	_, err := s.Pull(t.Context(), r.host()+"/a:1", image.PullOptions{Platform: "linux/amd64", Registry: anonymous()})
	wantFull(t, dir, err)
	if !strings.Contains(err.Error(), "about 6.3 MB are needed, 4.2 MB are free in "+dir) {
		t.Errorf("how much is needed and free does not stand in %q", err)
	}
	if asked := r.requests(layer); len(asked) > 0 {
		t.Errorf("fetched before it was refused: %v", asked)
	}
}

// When the disk fills up in the middle of a download, nothing of it stays, and
// the next one works once there is room.
func TestDiskFillsWhilePulling(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "a:1", img)
	dir := smallDisk(t, "8m")
	s := open(t, dir, agent(t, "1"))
	filler := filepath.Join(dir, "filler")
	var once sync.Once
	r.set(func(_ http.ResponseWriter, req *http.Request, _ http.Handler) bool {
		if strings.HasSuffix(req.URL.Path, layer) {
			once.Do(func() {
				if err := os.WriteFile(filler, make([]byte, 7<<20), 0o600); err != nil {
					t.Error(err)
				}
			})
		}
		return false
	})
	opts := image.PullOptions{Platform: "linux/amd64", Registry: anonymous()}
	_, err := s.Pull(t.Context(), r.host()+"/a:1", opts)
	wantFull(t, dir, err)
	if !strings.Contains(err.Error(), "the disk of "+dir+" filled up") {
		t.Errorf("the error is %q", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), r.host()+"/a:1", opts); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// Archives on disks that are too small: refused at once where it can be known,
// else nothing stays, and a smaller one fits.
func TestDiskTooSmallForArchive(t *testing.T) {
	noise, _ := big(t)
	squeezed := layered(t, v1.Config{}, compression.GZip, rootTar(t, [2]string{"f", squeezable(12 << 20)}))
	plain := hostileArchive(t, "", rootTar(t, [2]string{"f", squeezable(12 << 20)}))
	var whole bytes.Buffer
	z := gzip.NewWriter(&whole)
	_, _ = z.Write(plain)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		archive []byte
		disk    string
		known   bool // how much is needed
	}{
		{"compressed layer", dockerArchive(t, map[string]v1.Image{"a": noise}), "5m", true},
		{"layer that grows in the making", dockerArchive(t, map[string]v1.Image{"a": squeezed}), "5m", false},
		{"uncompressed layer", plain, "5m", true},
		{"archive compressed as a whole", whole.Bytes(), "5m", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := smallDisk(t, c.disk)
			s := open(t, dir, agent(t, "1"))
			path := filepath.Join(t.TempDir(), "archive")
			if err := os.WriteFile(path, c.archive, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			opts := image.LoadOptions{Name: "a", Platform: "linux/amd64"}
			_, err = s.Load(t.Context(), f, opts)
			wantFull(t, dir, err)
			if got := strings.Contains(err.Error(), "are needed"); got != c.known {
				t.Errorf("the error is %q", err)
			}
			fits := hostileArchive(t, "", rootTar(t, [2]string{"f", squeezable(1 << 20)}))
			if _, err := s.Load(t.Context(), bytes.NewReader(fits), opts); err != nil {
				t.Errorf("a smaller one: %v", err)
			}
		})
	}
}

// A new agent needs a new root file system: as much room as the old one took.
func TestNoRoomForNewAgent(t *testing.T) {
	dir := smallDisk(t, "5m")
	importTar(t, open(t, dir, agent(t, "1")), "a", rootTar(t, [2]string{"f", squeezable(3 << 20)}))
	had := files(t, dir)
	_, err := open(t, dir, agent(t, "2")).Resolve(t.Context(), "a")
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "are needed") {
		t.Errorf("the error is %v", err)
	}
	if now := files(t, dir); len(now) != len(had) {
		t.Errorf("there were %v, now there are %v", had, now)
	}
}
