//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

// TestTreeItself: what is made with its parents may have none but the tree's own
// directory, such as /workspace where somebody removed it.
func TestTreeItself(t *testing.T) {
	dir := t.TempDir()
	fsys := &fileSystem{users: newUsers(), dir: "/"}
	tree, err := fsys.Tree(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := tree.Stat(".", true); err != nil {
		t.Error(err)
	}
	below, err := tree.Tree(".", true)
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	if err := below.Mkdir("workspace", 0o755); err != nil {
		t.Error(err)
	}
	if i, err := os.Lstat(filepath.Join(dir, "workspace")); err != nil || !i.IsDir() {
		t.Errorf("there is %v, %v", i, err)
	}
	for _, p := range []string{"..", "a/..", "a/.", "./.."} {
		if _, err := tree.Stat(p, true); err == nil {
			t.Errorf("%s leads somewhere", p)
		}
	}
}

func TestFiles(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	at := func(p string) string { return filepath.Join(dir, p) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.WriteFile(soon(t), at("a/b/f"), strings.NewReader("hello"), client.WriteOptions{Parents: true, Mode: 0o640}))
	must(s.WriteFile(soon(t), at("a/b/f"), strings.NewReader(" world"), client.WriteOptions{Append: true}))
	if got := read(t, s, at("a/b/f"), client.ReadOptions{Offset: 3, Length: 5}); got != "lo wo" {
		t.Errorf("got %q", got)
	}
	i, err := s.Stat(soon(t), at("a/b/f"), client.StatOptions{})
	if err != nil || i.Size != 11 || i.Mode != 0o640 || i.Name != "f" {
		t.Errorf("got %+v, %v", i, err)
	}
	must(s.WriteFile(soon(t), at("bad\xff\nname"), strings.NewReader("x"), client.WriteOptions{}))
	must(s.Mkdir(soon(t), at("a/b/f2"), client.MkdirOptions{}))
	list, _, err := s.List(soon(t), dir, client.ListOptions{})
	if err != nil || len(list) != 2 || list[1].Name != "bad\xff\nname" {
		t.Errorf("got %+v, %v", list, err)
	}
	one, next, err := s.List(soon(t), dir, client.ListOptions{Limit: 1})
	if err != nil || len(one) != 1 || next == "" {
		t.Fatalf("got %v, %q, %v", one, next, err)
	}
	rest, next, err := s.List(soon(t), dir, client.ListOptions{Cursor: next})
	if err != nil || len(rest) != 1 || next != "" {
		t.Errorf("got %v, %q, %v", rest, next, err)
	}
	must(s.Move(soon(t), at("a/b/f"), at("g"), client.MoveOptions{}))
	must(s.WriteFile(soon(t), at("h"), strings.NewReader("h"), client.WriteOptions{}))
	if err := s.Move(soon(t), at("g"), at("h"), client.MoveOptions{}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("move onto a file gives %v", err)
	}
	must(s.Move(soon(t), at("g"), at("h"), client.MoveOptions{Overwrite: true}))
	if err := s.Remove(soon(t), at("a"), client.RemoveOptions{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removing a directory that is not empty gives %v", err)
	}
	must(s.Remove(soon(t), at("a"), client.RemoveOptions{Recursive: true}))
	if _, err := s.ReadFile(soon(t), at("a"), client.ReadOptions{}); !errors.Is(err, fs.ErrNotExist) || !errdefs.IsNotFound(err) {
		t.Errorf("a missing file gives %v", err)
	}
	if got := read(t, s, "/proc/version", client.ReadOptions{}); !strings.Contains(got, "Linux") {
		t.Errorf("/proc/version is %q", got)
	}
	for _, p := range []string{"/proc/self/mem", "/proc/self/environ", "/proc/thread-self/status", fmt.Sprintf("/proc/%d/maps", os.Getpid())} {
		if _, err := s.ReadFile(soon(t), p, client.ReadOptions{}); !errdefs.IsPermissionDenied(err) {
			t.Errorf("the agent's own %s: %v", p, err)
		}
	}
}

func read(t *testing.T, s *client.Session, name string, o client.ReadOptions) string {
	t.Helper()
	r, err := s.ReadFile(soon(t), name, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Files that are no regular ones never hold a call up.
func TestOddFiles(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, "/dev/zero", dir} {
		if _, err := s.ReadFile(soon(t), p, client.ReadOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("reading %s gives %v", p, err)
		}
		if err := s.WriteFile(soon(t), p, strings.NewReader("x"), client.WriteOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("writing %s gives %v", p, err)
		}
		if err := s.WriteFile(soon(t), p, strings.NewReader("x"), client.WriteOptions{Atomic: true}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("replacing %s gives %v", p, err)
		}
	}
	for _, p := range []string{"", "a\x00b"} {
		if _, err := s.Stat(soon(t), p, client.StatOptions{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("path %q gives %v", p, err)
		}
	}
}

var errCut = errors.New("cut")

// cutReader breaks in the middle.
type cutReader struct{ left int }

func (r *cutReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errCut
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

// FS-17: a cut upload leaves the old content.
func TestFS17AtomicWrite(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	target, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFile(soon(t), link, &cutReader{500_000}, client.WriteOptions{Atomic: true}); err == nil {
		t.Error("a cut upload succeeds")
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		names, _ := os.ReadDir(dir)
		if len(names) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a cut upload leaves %v", names)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := read(t, s, target, client.ReadOptions{}); got != "old" {
		t.Errorf("the file holds %q", got)
	}
	if err := s.WriteFile(soon(t), link, strings.NewReader("new"), client.WriteOptions{Atomic: true}); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Lstat(link); err != nil || i.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", i, err)
	}
	if i, err := os.Stat(target); err != nil || i.Mode() != 0o600 || i.Size() != 3 {
		t.Errorf("the file is %v, %v", i, err)
	}
}

// TestCutBody: whose body can't be read is told why, not what the agent says of the half
// that it got.
func TestCutBody(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	for n := range 500 {
		if err := s.WriteFile(soon(t), filepath.Join(dir, "f"), &cutReader{n * 100}, client.WriteOptions{}); !errors.Is(err, errCut) {
			t.Fatalf("upload %d, which is cut: %v", n, err)
		}
	}
}
