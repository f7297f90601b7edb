//go:build linux

package volume_test

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

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
	"agentbox/internal/volume"
)

// Archives that lie, in the forms that have hurt others.
func TestRestoreHostile(t *testing.T) {
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o4755, Size: 3}
	}
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	out := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		headers []*tar.Header
		skips   int
	}{
		"dot dot":           {[]*tar.Header{reg("../pwn")}, 1},
		"deep dot dot":      {[]*tar.Header{reg("a/../../pwn")}, 1},
		"absolute":          {[]*tar.Header{reg(out)}, 1},
		"link then file":    {[]*tar.Header{link("l", ".."), reg("l/pwn")}, 1},
		"link to a file":    {[]*tar.Header{link("l", out), reg("l")}, 0},
		"hard link out":     {[]*tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../records"}}, 1},
		"hard link by link": {[]*tar.Header{link("l", "/etc"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/passwd"}}, 1},
		"hard link to link": {[]*tar.Header{link("l", "/etc/passwd"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "l"}}, 1},
		"directory on link": {[]*tar.Header{link("l", "/tmp"), {Name: "l", Typeflag: tar.TypeDir, Mode: 0o777}}, 1},
		"device":            {[]*tar.Header{{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}}, 1},
		"fifo":              {[]*tar.Header{{Name: "f", Typeflag: tar.TypeFifo}}, 1},
		"file as directory": {[]*tar.Header{reg("x"), reg("x/pwn")}, 1},
		"directory as file": {[]*tar.Header{{Name: "x/y", Typeflag: tar.TypeDir, Mode: 0o755}, reg("x")}, 1},
		"twice":             {[]*tar.Header{reg("x"), reg("x")}, 0},
		"too deep":          {[]*tar.Header{reg(strings.Repeat("a/", 1000) + "x")}, 1},
		"itself":            {[]*tar.Header{{Name: "./", Typeflag: tar.TypeDir, Mode: 0}, reg("x")}, 0},
		"no name":           {[]*tar.Header{reg("")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, v, "default", "data")
			id := h.records.only(t)
			skipped, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(tarOf(t, c.headers...)), volume.Bounds{})
			if err != nil || len(skipped) != c.skips {
				t.Errorf("skipped %q, %v; want %d", skipped, err, c.skips)
			}
			must(t, filepath.Walk(filepath.Join(h.Dir, id, "data"), func(p string, i os.FileInfo, err error) error {
				if err == nil && i.Mode()&^(os.ModeDir|os.ModeSymlink|os.ModePerm) != 0 {
					t.Errorf("%s has mode %v", p, i.Mode())
				}
				return err
			}))
			if names, _ := os.ReadDir(filepath.Join(h.Dir, id)); len(names) != 1 {
				t.Errorf("beside the tree: %v", names)
			}
			must(t, v.Remove(t.Context(), "default", "data"))
		})
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("a file was written outside")
	}
}

func TestRestoreBounds(t *testing.T) {
	h := newHost(t, sandbox.VolumeImage)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	two := tarOf(t, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 3}, &tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: 3})
	for _, b := range []volume.Bounds{{Bytes: 5}, {Entries: 1}} {
		if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two), b); !errors.Is(err, transfer.ErrBounds) {
			t.Errorf("%+v: %v", b, err)
		}
		if b.Entries > 0 {
			if _, err := v.Backup(t.Context(), "default", "data", io.Discard, volume.Bounds{Entries: 1}); err != nil {
				t.Errorf("one entry where one may be: %v", err)
			}
		}
	}
	if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two[:514]), volume.Bounds{}); err == nil {
		t.Error("a broken archive was taken as whole")
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 2 * volume.MinSize}))
	_, err := w.Write(bytes.Repeat([]byte("x"), int(2*volume.MinSize)))
	must(t, err)
	must(t, w.Close())
	if _, err := v.Restore(t.Context(), "default", "data", &b, volume.Bounds{}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("more than the volume takes: %v", err)
	}
	acquire(t, v, "default", "data", "s")
	if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two), volume.Bounds{}); !errdefs.IsConflict(err) {
		t.Errorf("into a volume in use: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Backup(ctx, "default", "data", io.Discard, volume.Bounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	release(t, v, "default", "data", "s")
}

func tarOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte("abc"))
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}
