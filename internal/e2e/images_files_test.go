package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// sums are lines "SHA256 PATH" for all regular files of a tar.
func sums(t *testing.T, r io.Reader) (list string, files int) {
	t.Helper()
	var b strings.Builder
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return b.String(), files
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Clean("/" + h.Name)
		if h.Typeflag != tar.TypeReg || strings.ContainsAny(path, "\n") || path == "/etc/hosts" || path == "/etc/hostname" || path == "/etc/resolv.conf" {
			continue // those are each sandbox's own
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, tr); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", hex.EncodeToString(sum.Sum(nil)), path)
		files++
	}
}

// Each file of an image of 60,000 reads and maps as it came: of one byte to
// 8 KiB, which readers are known to get wrong, and some big ones. The sandbox's
// kernel, this machine's and the format's own tool agree on that.
func TestEveryFileReadsAndMaps(t *testing.T) {
	Binary(t)
	count := 60_000
	if testing.Short() {
		count = 6_000
	}
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	files := map[string][]byte{"prog": inside(t), "zeros": make([]byte, 5<<20+1)}
	for i := range count {
		size := 1 + i%8192
		if i%1000 == 0 {
			size = 1 + random.IntN(len(noise)-1)
		}
		from := random.IntN(len(noise) - size + 1)
		files[fmt.Sprintf("d%d/f%d", i%97, i)] = noise[from : from+size]
	}
	layer := tree(t, files)
	host := serve(t, map[string]v1.Image{"many": imageOf(t, v1.Config{Entrypoint: []string{"/prog", "compare"}}, layer)})
	want, n := sums(t, bytes.NewReader(layer))
	dir := ownDir(t)
	all := fmt.Sprintf("%d files, 0 bad\n", n)
	out := RunWithin(t, 20*time.Minute, dir, want, "run", "-i", "--memory", "1g", host+"/many")
	if out.Code != 0 || out.Stdout != all {
		t.Errorf("status %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	fsckAll(t, dir)
	t.Run("kernel", func(t *testing.T) {
		if got := hostCompare(t, rootsOf(t, dir)[0], want); got != all {
			t.Errorf("through this machine's kernel: %s", got)
		}
	})
}

// hostCompare lets this machine's kernel mount a root file system that has the
// program of testdata/inside, and the program compare the files there. The mount
// is gone with the process.
func hostCompare(t *testing.T, root, want string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	const script = `mount -t erofs -o loop,ro "$1" "$2" || exit 32; exec chroot "$2" /prog compare`
	cmd := exec.Command("sh", "-c", script, "sh", root, t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stdin = strings.NewReader(want)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 32 {
		t.Skipf("this machine's kernel mounts no EROFS file (module erofs, loop devices): %s", out)
	}
	if err != nil {
		t.Errorf("compare: %v", err)
	}
	return string(out)
}

// rootsOf are the root file systems of a data directory.
func rootsOf(t *testing.T, dir string) []string {
	t.Helper()
	roots, err := filepath.Glob(filepath.Join(dir, "images", "erofs", "*.erofs"))
	if err != nil || len(roots) == 0 {
		t.Fatalf("no root file systems in %s: %v", dir, err)
	}
	return roots
}

// fsckAll lets the second implementation of the format check all root file
// systems of a data directory.
func fsckAll(t *testing.T, dir string) {
	t.Helper()
	t.Run("fsck.erofs", func(t *testing.T) {
		fsck, err := exec.LookPath("fsck.erofs")
		Need(t, err == nil, "fsck.erofs (package erofs-utils)")
		for _, root := range rootsOf(t, dir) {
			if text, err := exec.Command(fsck, root).CombinedOutput(); err != nil || bytes.Contains(text, []byte("<E>")) {
				t.Errorf("fsck.erofs: %v\n%s", err, text)
			}
		}
	})
}
