//go:build linux

package pid1

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
)

// These tests exchange a directory for a link at each moment of a call that goes
// through a tree, and look whether the call was led to what the link points to:
// the canary, which has the names of the tree. The control is the same calls
// with trees that act by path.

// swapper is a file system that exchanges something before one of its operations.
type swapper struct {
	agent.Files
	byPath bool // the control
	left   int  // operations until then
	swap   func()
}

func (s *swapper) As(user string, f func(agent.FS) error) error {
	return s.Files.As(user, func(fsys agent.FS) error { return f(&swapped{FS: fsys, s: s}) })
}

func (s *swapper) step() {
	if s.left--; s.left == -1 {
		s.swap()
	}
}

// swapped is an FS or a Tree of a swapper.
type swapped struct {
	agent.FS
	s    *swapper
	root string // of a tree that acts by path
}

func (w *swapped) at(p string) string {
	w.s.step()
	switch {
	case w.root == "":
		return p
	case p == "":
		return w.root
	}
	return w.root + "/" + p
}

func (w *swapped) Tree(p string, follow bool) (agent.Tree, error) {
	if w.s.byPath {
		p = w.at(p)
		if i, err := w.FS.Stat(p, follow); err != nil || i.GetMode()&syscall.S_IFMT != syscall.S_IFDIR {
			return nil, syscall.ENOTDIR
		}
		return &swapped{FS: w.FS, s: w.s, root: p}, nil
	}
	t, err := w.FS.Tree(w.at(p), follow)
	if err != nil {
		return nil, err
	}
	return &swapped{FS: t, s: w.s}, nil
}

func (w *swapped) Close() error {
	if c, ok := w.FS.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (w *swapped) Stat(p string, follow bool) (*guestv1.FileInfo, error) {
	return w.FS.Stat(w.at(p), follow)
}
func (w *swapped) Names(p, after string, limit int) ([]string, bool, error) {
	return w.FS.Names(w.at(p), after, limit)
}
func (w *swapped) Readlink(p string) (string, error) { return w.FS.Readlink(w.at(p)) }
func (w *swapped) Open(p string, known *guestv1.FileInfo) (agent.File, error) {
	return w.FS.Open(w.at(p), known)
}
func (w *swapped) Create(p string, mode uint32, how agent.CreateMode) (agent.File, error) {
	return w.FS.Create(w.at(p), mode, how)
}
func (w *swapped) Mkdir(p string, mode uint32) error       { return w.FS.Mkdir(w.at(p), mode) }
func (w *swapped) Symlink(target, p string) error          { return w.FS.Symlink(target, w.at(p)) }
func (w *swapped) Link(old, p string) error                { return w.FS.Link(w.at(old), w.at(p)) }
func (w *swapped) Chmod(p string, mode uint32) error       { return w.FS.Chmod(w.at(p), mode) }
func (w *swapped) Chown(p string, uid, gid int) error      { return w.FS.Chown(w.at(p), uid, gid) }
func (w *swapped) Chtimes(p string, mtime time.Time) error { return w.FS.Chtimes(w.at(p), mtime) }
func (w *swapped) Remove(p string) error                   { return w.FS.Remove(w.at(p)) }
func (w *swapped) Rename(from, to string, over bool) error {
	return w.FS.Rename(w.at(from), w.at(to), over)
}
func (w *swapped) Watch(n agent.Notifier, p string) (int, error) { return w.FS.Watch(n, w.at(p)) }

// fixture is a tree and its canary.
type fixture struct{ dir string }

func (x fixture) at(p string) string { return filepath.Join(x.dir, p) }

// secret is what only files of the canary hold.
const secret = "the canary sings"

func newFixture(t *testing.T) fixture {
	t.Helper()
	x := fixture{t.TempDir()}
	for _, top := range []string{"tree", "canary"} {
		for _, d := range []string{"sub/b", "sub/c"} {
			if err := os.MkdirAll(x.at(top+"/"+d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		text := "plain"
		if top == "canary" {
			text = secret
		}
		for _, f := range []string{"sub/a", "sub/b/f", "h"} {
			if err := os.WriteFile(x.at(top+"/"+f), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Only the canary has these, so a call that makes them meets them after the swap.
	for _, d := range []string{"sub/new", "sub/secret-name"} {
		if err := os.Mkdir(x.at("canary/"+d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(x.at("free"), 0o755); err != nil {
		t.Fatal(err)
	}
	return x
}

// exchange puts a link to the canary's part in the place of a directory.
func (x fixture) exchange(p string) {
	_ = os.Rename(x.at(p), x.at("free/moved"))
	_ = os.Symlink(x.at("canary"+strings.TrimPrefix(p, "tree")), x.at(p))
}

// state is all that can be seen of the canary.
func (x fixture) state(t *testing.T) string {
	var b strings.Builder
	err := filepath.WalkDir(x.at("canary"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		st := i.Sys().(*syscall.Stat_t)
		fmt.Fprintln(&b, p, i.Mode(), st.Uid, st.Gid, st.Ino, st.Nlink, i.Size(), i.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// swapCalls are the calls that go through a tree. What they return is what they
// tell their caller.
var swapCalls = []struct {
	name string
	root bool // needs its rights
	call func(t *testing.T, s *client.Session, x fixture) string
}{
	{"Chmod", false, func(t *testing.T, s *client.Session, x fixture) string {
		_, err := s.Chmod(soon(t), x.at("tree"), 0o777, client.ChangeOptions{Recursive: true})
		return fmt.Sprint(err)
	}},
	{"Chown", true, func(t *testing.T, s *client.Session, x fixture) string {
		_, err := s.Chown(soon(t), x.at("tree"), "12345:12345", client.ChangeOptions{Recursive: true})
		return fmt.Sprint(err)
	}},
	{"Remove", false, func(t *testing.T, s *client.Session, x fixture) string {
		return fmt.Sprint(s.Remove(soon(t), x.at("tree"), client.RemoveOptions{Recursive: true}))
	}},
	{"CopyFrom", false, func(t *testing.T, s *client.Session, x fixture) string {
		_, _, err := s.Copy(soon(t), x.at("tree"), x.at("out"), client.CopyOptions{Recursive: true})
		return fmt.Sprint(err) + contents(t, x.at("out"))
	}},
	{"CopyTo", false, func(t *testing.T, s *client.Session, x fixture) string {
		// The destination's own path is the caller's, and resolved as usual.
		if err := os.CopyFS(x.at("src/tree"), os.DirFS(x.at("tree"))); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Copy(soon(t), x.at("src"), x.dir, client.CopyOptions{Recursive: true, Overwrite: true})
		return fmt.Sprint(err)
	}},
	{"GetArchive", false, func(t *testing.T, s *client.Session, x fixture) string {
		r, err := s.GetArchive(soon(t), x.at("tree"), client.ArchiveOptions{})
		if err != nil {
			return fmt.Sprint(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return fmt.Sprint(string(b), err)
	}},
	{"PutArchive", false, func(t *testing.T, s *client.Session, x fixture) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{"sub/b/f", "sub/a", "sub/b/y"} {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o666, Size: 4, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.PutArchive(soon(t), x.at("tree"), &b, client.UnpackOptions{}))
	}},
	{"Mkdir", true, func(t *testing.T, s *client.Session, x fixture) string {
		return fmt.Sprint(s.Mkdir(soon(t), x.at("tree/sub/new"), client.MkdirOptions{Owner: "12345", Parents: true}))
	}},
	{"List", false, func(t *testing.T, s *client.Session, x fixture) string {
		list, _, err := s.List(soon(t), x.at("tree"), client.ListOptions{Depth: 5})
		return fmt.Sprint(list, err)
	}},
	{"Glob", false, func(t *testing.T, s *client.Session, x fixture) string {
		r, err := s.Glob(soon(t), x.at("tree"), []string{"**"}, client.GlobOptions{})
		return fmt.Sprint(r, err)
	}},
	{"ReadWithin", false, func(t *testing.T, s *client.Session, x fixture) string {
		r, err := s.ReadFile(soon(t), x.at("tree/sub/b/f"), client.ReadOptions{Within: []string{x.at("tree")}})
		if err != nil {
			return fmt.Sprint(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return fmt.Sprint(string(b), err)
	}},
	{"WriteWithin", false, func(t *testing.T, s *client.Session, x fixture) string {
		return fmt.Sprint(s.WriteFile(soon(t), x.at("tree/sub/b/f"), strings.NewReader("evil"), client.WriteOptions{Append: true, Parents: true, Within: []string{x.at("tree")}}))
	}},
	{"WriteAnewWithin", false, func(t *testing.T, s *client.Session, x fixture) string {
		return fmt.Sprint(s.WriteFile(soon(t), x.at("tree/sub/b/f"), strings.NewReader("evil"), client.WriteOptions{Atomic: true, Parents: true, Within: []string{x.at("tree")}}))
	}},
	{"Search", false, func(t *testing.T, s *client.Session, x fixture) string {
		r, err := s.Search(soon(t), x.at("tree"), "sings|plain", client.SearchOptions{})
		return fmt.Sprint(r, err)
	}},
}

// contents is what files of a tree hold, and their names.
func contents(t *testing.T, dir string) string {
	var b strings.Builder
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		fmt.Fprintln(&b, p)
		if err == nil && d.Type().IsRegular() {
			text, _ := os.ReadFile(p)
			b.Write(text)
		}
		return nil
	})
	return b.String()
}

// swapAt runs a call with a swap before operation n, and tells whether the call
// was led to the canary, and whether it had that many operations.
func swapAt(t *testing.T, victim string, n int, byPath bool, call func(*testing.T, *client.Session, fixture) string) (led string, swapped bool) {
	x := newFixture(t)
	before := x.state(t)
	sw := &swapper{Files: &files{newUsers(), func() *guestv1.GuestConfig {
		return &guestv1.GuestConfig{User: fmt.Sprint(os.Getuid())}
	}}, byPath: byPath, left: n, swap: func() { x.exchange(victim) }}
	told := call(t, dialFiles(t, sw), x)
	switch after := x.state(t); {
	case after != before:
		led = "it is now " + after
	case strings.Contains(told, secret) || strings.Contains(told, "secret-name"):
		led = "it told " + told
	}
	return led, sw.left < 0
}

func dialFiles(t *testing.T, f agent.Files) *client.Session {
	t.Helper()
	a := agent.New(agent.Options{Files: f})
	host, end := net.Pipe()
	go func() { _ = a.Serve(end, false) }()
	s, err := client.New(t.Context(), host, client.Options{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		a.Close()
	})
	return s
}

func TestFS04_SwappedDirectories(t *testing.T) {
	const most = 500 // operations of one call; there are some fifty
	for _, c := range swapCalls {
		t.Run(c.name, func(t *testing.T) {
			if c.root && os.Getuid() != 0 {
				t.Skip("only root gives files away")
			}
			ledByPath := false
			for _, victim := range []string{"tree", "tree/sub"} {
				// What a path leads to when the call begins is what it is about.
				n := 1
				for ; n < most; n++ {
					led, swapped := swapAt(t, victim, n, false, c.call)
					if led != "" {
						t.Errorf("%s is exchanged before operation %d: the canary was touched: %s", victim, n, led)
					}
					if !ledByPath {
						led, _ := swapAt(t, victim, n, true, c.call)
						ledByPath = led != ""
					}
					if !swapped {
						break
					}
				}
				if n < 3 || n == most {
					t.Errorf("a call had %d operations", n)
				}
			}
			if !ledByPath {
				t.Error("the control was not led to the canary, either")
			}
		})
	}
}
