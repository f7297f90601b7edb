//go:build linux

package pid1

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

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
	r, err := s.GetArchive(soon(t), from, client.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.PutArchive(soon(t), to, r, client.UnpackOptions{Parents: true}); err != nil {
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
			err := s.PutArchive(soon(t), to, bytes.NewReader(archive(t, c.entries...)), client.UnpackOptions{Parents: true})
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
		b  []byte
		o  client.UnpackOptions
		is func(error) bool
	}{
		"entries":     {b, client.UnpackOptions{MaxEntries: 2}, errdefs.IsResourceExhausted},
		"bytes":       {b, client.UnpackOptions{MaxBytes: 10}, errdefs.IsResourceExhausted},
		"size lie":    {b[:515], client.UnpackOptions{}, errdefs.IsInvalidArgument},
		"rubbish":     {bytes.Repeat([]byte{7}, 2000), client.UnpackOptions{}, errdefs.IsInvalidArgument},
		"no gzip":     {b, client.UnpackOptions{Format: client.TarGz}, errdefs.IsInvalidArgument},
		"zip":         {b, client.UnpackOptions{Format: client.Zip}, errdefs.IsInvalidArgument},
		"cut gzip":    {gzipped(t, b)[:60], client.UnpackOptions{Format: client.TarGz}, errdefs.IsInvalidArgument},
		"strip a lot": {b, client.UnpackOptions{Strip: 10_000}, errdefs.IsInvalidArgument},
		"too deep":    {archive(t, tar.Header{Name: strings.Repeat("d/", 300) + "f"}), client.UnpackOptions{}, errdefs.IsInvalidArgument},
	} {
		if err := s.PutArchive(soon(t), t.TempDir(), bytes.NewReader(c.b), c.o); !c.is(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// ESC-17: an upload gains no privileges, whatever its archive says.
func TestESC17NoPrivilegeBits(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	h := tar.Header{Name: "su", Mode: 0o6755, Uid: 0, Gid: 0}
	if err := s.PutArchive(soon(t), dir, bytes.NewReader(archive(t, h)), client.UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(filepath.Join(dir, "su"))
	if err != nil || i.Mode() != 0o755 || i.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
		t.Errorf("got %v, %v", i.Mode(), err)
	}
}

func gzipped(t testing.TB, b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func FuzzTarIntake(f *testing.F) {
	a := archive(f, tar.Header{Name: "a/b"}, tar.Header{Name: "l", Linkname: "..", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/x"})
	b := archive(f, tar.Header{Name: "../x"}, tar.Header{Name: "h", Linkname: "a", Typeflag: tar.TypeLink})
	for _, seed := range [][]byte{a, b} {
		f.Add(seed, "tar", 0)
		f.Add(gzipped(f, seed), "tar.gz", 1)
	}
	fsys := &fileSystem{users: newUsers(), dir: "/"}
	f.Fuzz(func(t *testing.T, b []byte, format string, strip int) {
		dir := t.TempDir()
		to := filepath.Join(dir, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = agent.Extract(t.Context(), fsys, to, bytes.NewReader(b), agent.ExtractOptions{
			Format: format, MaxBytes: 1 << 20, MaxEntries: 1_000, Strip: max(strip, 0),
		})
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

// What is no file, directory or link is named, so that nobody misses it in
// silence.
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
	r, err := s.GetArchive(soon(t), dir, client.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if h, err := tar.NewReader(r).Next(); err != io.EOF {
		t.Errorf("got %+v, %v", h, err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	want := []client.SkippedFile{{Path: "fifo", Reason: client.SkipFIFO}, {Path: "socket", Reason: client.SkipSocket}}
	if left := r.Skipped(); left.Total != 2 || !slices.Equal(left.First, want) {
		t.Errorf("left out: %+v", left)
	}
}

// An archive has no entries that lie so deep that their names would be most of it,
// and says so.
func TestDeepTreeInArchive(t *testing.T) {
	s, dir := dial(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 400)), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := s.GetArchive(soon(t), dir, client.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all bytes.Buffer
	n, in := 0, tar.NewReader(io.TeeReader(r, &all))
	for {
		if _, err = in.Next(); err != nil {
			break
		}
		n++
	}
	if left := r.Skipped(); !errors.Is(err, io.EOF) || n != 256 || left.Total != 1 || left.First[0].Reason != client.SkipDepth {
		t.Errorf("%d entries, %v, left out %+v", n, err, left)
	}
	if err := s.PutArchive(soon(t), t.TempDir(), &all, client.UnpackOptions{}); err != nil {
		t.Errorf("it can't be unpacked again: %v", err)
	}
}
