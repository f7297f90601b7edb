//go:build linux

package pid1

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
)

func TestTarRoundTrip(t *testing.T) {
	s, from, to := dial(t), t.TempDir(), filepath.Join(t.TempDir(), "to")
	long := strings.Repeat("d", 200)
	if err := os.MkdirAll(filepath.Join(from, "sub", long), 0o750); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"sub/" + long + "/deep": "x", "bad\xff": "y", "empty": ""}
	for name, content := range want {
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/somewhere", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(from, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := s.GetTar(soon(t), from, client.TarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.PutTar(soon(t), to, r, client.TarOptions{Parents: true}); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		b, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(b) != content {
			t.Errorf("%q: %q, %v", name, b, err)
		}
	}
	if l, err := os.Readlink(filepath.Join(to, "link")); err != nil || l != "/somewhere" {
		t.Errorf("link: %q, %v", l, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "fifo")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a FIFO was packed: %v", err)
	}
}

func archive(t testing.TB, entries ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := ""
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, body = tar.TypeReg, "body"
			h.Size = int64(len(body))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FS-06: what must not be unpacked is refused with its name.
func TestFS06HostileArchives(t *testing.T) {
	s := dial(t)
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink} }
	for name, c := range map[string]struct {
		entries []tar.Header
		culprit string
	}{
		"parent":            {[]tar.Header{{Name: "../x"}}, "../x"},
		"parent inside":     {[]tar.Header{{Name: "a/../../x"}}, "a/../../x"},
		"absolute":          {[]tar.Header{{Name: "/x"}}, "/x"},
		"target":            {[]tar.Header{{Name: "."}}, "."},
		"through a link":    {[]tar.Header{link("l", ".."), {Name: "l/x"}}, "l/x"},
		"through a file":    {[]tar.Header{{Name: "f"}, {Name: "f/x"}}, "f/x"},
		"directory is link": {[]tar.Header{link("l", ".."), {Name: "l/", Typeflag: tar.TypeDir}}, "l/"},
		"hard link out":     {[]tar.Header{hard("h", "../canary")}, "h"},
		"hard through link": {[]tar.Header{link("l", ".."), hard("h", "l/canary")}, "h"},
		"hard to link":      {[]tar.Header{link("l", "../canary"), hard("h", "l")}, "h"},
		"device":            {[]tar.Header{{Name: "d", Typeflag: tar.TypeChar}}, "d"},
		"fifo":              {[]tar.Header{{Name: "p", Typeflag: tar.TypeFifo}}, "p"},
		"file on directory": {[]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}, {Name: "d"}}, "d"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			canary := filepath.Join(dir, "canary")
			if err := os.WriteFile(canary, []byte("canary"), 0o600); err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, "to")
			err := s.PutTar(soon(t), to, bytes.NewReader(archive(t, c.entries...)), client.TarOptions{Parents: true})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), fmt.Sprintf("entry %q", c.culprit)) {
				t.Errorf("got %v", err)
			}
			names, _ := os.ReadDir(dir)
			if b, err := os.ReadFile(canary); err != nil || string(b) != "canary" || len(names) != 2 {
				t.Errorf("something outside changed: %v, %v", names, err)
			}
		})
	}
}

func TestArchiveLimits(t *testing.T) {
	s := dial(t)
	b := archive(t, tar.Header{Name: "a"}, tar.Header{Name: "b"}, tar.Header{Name: "c"})
	for name, c := range map[string]struct {
		b []byte
		o client.TarOptions
	}{
		"entries":  {b, client.TarOptions{MaxEntries: 2}},
		"bytes":    {b, client.TarOptions{MaxBytes: 10}},
		"size lie": {b[:515], client.TarOptions{}},
		"rubbish":  {bytes.Repeat([]byte{7}, 2000), client.TarOptions{}},
	} {
		if err := s.PutTar(soon(t), t.TempDir(), bytes.NewReader(c.b), c.o); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// ESC-17: an upload gains no privileges, whatever its archive says.
func TestESC17NoPrivilegeBits(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	h := tar.Header{Name: "su", Mode: 0o6755, Uid: 0, Gid: 0}
	if err := s.PutTar(soon(t), dir, bytes.NewReader(archive(t, h)), client.TarOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(filepath.Join(dir, "su"))
	if err != nil || i.Mode() != 0o755 || i.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
		t.Errorf("got %v, %v", i.Mode(), err)
	}
}

func FuzzTarIntake(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a/b"}, tar.Header{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/x"}))
	f.Add(archive(f, tar.Header{Name: "../x"}, tar.Header{Name: "h", Linkname: "a", Typeflag: tar.TypeLink}))
	fsys := &fileSystem{users: newUsers(), dir: "/"}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		to := filepath.Join(dir, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = agent.Extract(t.Context(), fsys, to, bytes.NewReader(b), 1<<20, 1_000)
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("something was made outside: %v", names)
		}
		_ = filepath.WalkDir(to, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !slices.Contains([]fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}, d.Type()) {
				t.Errorf("%s is of type %v", d.Name(), d.Type())
			}
			return nil
		})
	})
}

// What is no file, directory or link is named when it is asked for, so that
// nobody misses it in silence.
func TestSpecialFilesOfTree(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for special, want := range map[bool]map[string]byte{false: {}, true: {"fifo": tar.TypeFifo, "socket": guest.TarSocket}} {
		r, err := s.GetTar(soon(t), dir, client.TarOptions{Special: special})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]byte{}
		for a := tar.NewReader(r); ; {
			h, err := a.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got[h.Name] = h.Typeflag
		}
		r.Close()
		if !maps.Equal(got, want) {
			t.Errorf("special %v: got %v, want %v", special, got, want)
		}
	}
}
