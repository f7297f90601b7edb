package control_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"agentbox/internal/control"
	"agentbox/internal/owner"
)

// A server of net/http lingers for half a second over a body that it refused.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// box is a sandbox that remembers what it was given.
type box struct {
	info control.Info
	got  map[string]string
	tree func() io.ReadCloser
}

func (b *box) Info() control.Info { return b.info }

func (b *box) Stat(_ context.Context, path string) (control.Stat, error) {
	return control.Stat{Exists: path == "/there", Dir: path == "/there"}, nil
}

func (b *box) GetTree(_ context.Context, path string) (io.ReadCloser, error) {
	if path != "/there" {
		return nil, errdefs.ErrNotFound
	}
	return b.tree(), nil
}

func (b *box) PutTree(_ context.Context, dir string, r io.Reader) error {
	if dir == "/full" {
		return errdefs.ErrResourceExhausted
	}
	all, err := io.ReadAll(r)
	b.got[dir] = string(all)
	return err
}

// serve starts a process's worth of one sandbox.
func serve(t *testing.T, dataDir, id, name string) *box {
	t.Helper()
	o, err := owner.New(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{info: control.Info{ID: id, Name: name, Created: time.Now()}, got: map[string]string{}}
	s, err := control.Serve(o.Dir, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), o.Release()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// longDir is a data directory whose name is too long for the path of a socket.
func longDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func find(t *testing.T, dir, ref string) *control.Remote {
	t.Helper()
	r, err := control.Find(t.Context(), dir, ref)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestFind(t *testing.T) {
	dir := longDir(t)
	if _, err := control.Find(t.Context(), dir, "x"); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "none is running") {
		t.Errorf("without any: %v", err)
	}
	serve(t, dir, "aab1", "one")
	serve(t, dir, "aac2", "two")
	serve(t, dir, "b3", "aac")
	for ref, id := range map[string]string{"one": "aab1", "aac2": "aac2", "aab": "aab1", "b": "b3", "aac": "b3"} {
		if r := find(t, dir, ref); r.Info.ID != id {
			t.Errorf("%s is %s, want %s", ref, r.Info.ID, id)
		}
	}
	for ref, class := range map[string]func(error) bool{"aa": errdefs.IsInvalidArgument, "": errdefs.IsNotFound, "c": errdefs.IsNotFound} {
		if _, err := control.Find(t.Context(), dir, ref); !class(err) || ref != "aa" && !strings.Contains(err.Error(), "two") {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestCopy(t *testing.T) {
	dir := longDir(t)
	b := serve(t, dir, "aab1", "one")
	r := find(t, dir, "one")
	if err := r.PutTree(t.Context(), "/a b?&", strings.NewReader("bytes")); err != nil || b.got["/a b?&"] != "bytes" {
		t.Errorf("got %v, %v", b.got, err)
	}
	if err := r.PutTree(t.Context(), "/full", bytes.NewReader(make([]byte, 1<<20))); !errdefs.IsResourceExhausted(err) {
		t.Errorf("got %v", err)
	}
	if s, err := r.Stat(t.Context(), "/there"); err != nil || !s.Dir {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := r.GetTree(t.Context(), "/none"); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	var archive bytes.Buffer
	_ = tar.NewWriter(&archive).Close()
	b.tree = func() io.ReadCloser { return io.NopCloser(bytes.NewReader(archive.Bytes())) }
	if got, err := read(t, r); err != nil || got != archive.String() {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	// A tree that breaks off is no whole one.
	b.tree = func() io.ReadCloser { return io.NopCloser(io.MultiReader(strings.NewReader("half"), broken{})) }
	if got, err := read(t, r); !errdefs.IsAborted(err) || got != "half" {
		t.Errorf("got %q, %v", got, err)
	}
}

func read(t *testing.T, r *control.Remote) (string, error) {
	t.Helper()
	in, err := r.GetTree(t.Context(), "/there")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return string(b), err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errdefs.ErrAborted }

// Nobody else may even open the socket.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	s, err := control.Serve(dir, &box{})
	if err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(filepath.Join(dir, "control"))
	if err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", i, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
