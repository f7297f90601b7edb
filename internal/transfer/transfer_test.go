package transfer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/transfer"
)

func TestRoundTrip(t *testing.T) {
	src := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(src, "a/b c"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "a/b c/naïve\nname"), []byte("content"), 0o640))
	must(t, os.WriteFile(filepath.Join(src, "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.Mkdir(filepath.Join(src, "empty"), 0o755))
	must(t, os.Symlink("/etc/passwd", filepath.Join(src, "link")))

	var buf bytes.Buffer
	must(t, transfer.Pack(&buf, src, "top"))
	dst := filepath.Join(t.TempDir(), "new", "out")
	skipped, err := transfer.Unpack(&buf, dst, transfer.Options{})
	must(t, err)
	if len(skipped) != 1 || !strings.Contains(skipped[0], "top/link") {
		t.Errorf("skipped %q, want the link alone", skipped)
	}
	if b, err := os.ReadFile(filepath.Join(dst, "top/a/b c/naïve\nname")); err != nil || string(b) != "content" {
		t.Errorf("file: %q, %v", b, err)
	}
	if fi, err := os.Stat(filepath.Join(dst, "top/run.sh")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("program: %v, %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(dst, "top/empty")); err != nil || !fi.IsDir() {
		t.Errorf("empty directory: %v, %v", fi, err)
	}
}

func TestPackOneFile(t *testing.T) {
	f := filepath.Join(t.TempDir(), "data.csv")
	must(t, os.WriteFile(f, []byte("1,2"), 0o600))
	var buf bytes.Buffer
	must(t, transfer.Pack(&buf, f, "renamed.csv"))
	dst := t.TempDir()
	_, err := transfer.Unpack(&buf, dst, transfer.Options{})
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(dst, "renamed.csv")); err != nil || string(b) != "1,2" {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestUnpackHostile feeds what a guest could send; nothing may appear outside
// the target.
func TestUnpackHostile(t *testing.T) {
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o4755, Size: 3}
	}
	cases := map[string][]*tar.Header{
		"dot dot":           {reg("../pwn")},
		"deep dot dot":      {reg("a/../../pwn")},
		"absolute":          {reg("/pwn")},
		"link then file":    {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, reg("l/pwn")},
		"hard link":         {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}},
		"device":            {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"fifo":              {{Name: "f", Typeflag: tar.TypeFifo}},
		"file as directory": {reg("x"), reg("x/pwn")},
		"directory as file": {{Name: "x", Typeflag: tar.TypeDir, Mode: 0o755}, reg("x")},
		"twice":             {reg("x"), reg("x")},
	}
	for name, headers := range cases {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			must(t, os.WriteFile(filepath.Join(outer, "outside"), []byte("canary"), 0o600))
			dst := filepath.Join(outer, "dst")
			_, err := transfer.Unpack(bytes.NewReader(archive(t, headers...)), dst, transfer.Options{})
			must(t, err)
			entries, err := os.ReadDir(outer)
			must(t, err)
			if len(entries) != 2 {
				t.Errorf("outside the target: %v", entries)
			}
			must(t, filepath.Walk(dst, func(p string, fi os.FileInfo, err error) error {
				if err == nil && fi.Mode()&^(os.ModeDir|os.ModePerm) != 0 {
					t.Errorf("%s has mode %v", p, fi.Mode())
				}
				return err
			}))
		})
	}
}

// What is left out is said: what it is and why, as text that can't hurt.
func TestUnpackSaysWhatItLeavesOut(t *testing.T) {
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	}
	for _, c := range []struct {
		headers []*tar.Header
		want    string
	}{
		{[]*tar.Header{{Name: "p", Typeflag: tar.TypeFifo}}, `"p": a FIFO; only regular files and directories are collected`},
		{[]*tar.Header{{Name: "d", Typeflag: tar.TypeChar}}, `"d": a device; only regular files and directories are collected`},
		{[]*tar.Header{{Name: "s", Typeflag: 'U'}}, `"s": a special file; only regular files and directories are collected`},
		{[]*tar.Header{{Name: "\x1b[2J\n", Typeflag: tar.TypeSymlink, Linkname: "x"}}, `"\x1b[2J\n": a link; only regular files and directories are collected`},
		{[]*tar.Header{reg("\x1bx"), reg("\x1bx/\x1by")}, `"\x1bx/\x1by": file exists`},
		{[]*tar.Header{{Name: strings.Repeat("n", 5000), Typeflag: tar.TypeFifo}},
			`"` + strings.Repeat("n", 256) + `"…: a FIFO; only regular files and directories are collected`},
	} {
		skipped, err := transfer.Unpack(bytes.NewReader(archive(t, c.headers...)), t.TempDir(), transfer.Options{})
		if err != nil || len(skipped) != 1 || skipped[0] != c.want {
			t.Errorf("%q, %v; want %q", skipped, err, c.want)
		}
	}
	var many []*tar.Header
	for i := range 1000 {
		many = append(many, &tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeFifo})
	}
	skipped, err := transfer.Unpack(bytes.NewReader(archive(t, many...)), t.TempDir(), transfer.Options{})
	if err != nil || len(skipped) != 101 || skipped[100] != "and 900 more" {
		t.Errorf("%d lines, the last is %q, %v", len(skipped), skipped[len(skipped)-1], err)
	}
}

// Links that are kept lead to places in the directory, alone and together.
func TestUnpackLinks(t *testing.T) {
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	}
	outer := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outer, "outside"), []byte("canary"), 0o600))
	dst := filepath.Join(outer, "dst")
	must(t, os.Mkdir(dst, 0o755))
	must(t, os.Symlink("..", filepath.Join(dst, "own"))) // the user's, which the guest may know of
	in := archive(t,
		reg("d/f"), link("d/good", "f"), link("up", "d/f"), link("d/back", "../up"), link("dir", "d"), link("dangling", "d/none"), reg("taken"), link("taken", "d/f"),
		link("abs", "/etc/passwd"), link("dots", "../outside"), link("d/e/two", ".."), link("steps", "d/e/two/../../outside"), link("loop", "loop"),
		link("through", "own/outside"), link("d", "up"), link("l", "d"), reg("l/x"), link("", "x"), link("empty", ""), &tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "d/f"},
	)
	skipped, err := transfer.Unpack(bytes.NewReader(in), dst, transfer.Options{Links: true})
	must(t, err)
	for _, name := range []string{"d/good", "up", "d/back", "dir/f", "taken"} {
		if b, err := os.ReadFile(filepath.Join(dst, name)); err != nil || string(b) != "abc" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(dst, "dangling")); err != nil || to != "d/none" {
		t.Errorf("a link to nothing: %q, %v", to, err)
	}
	for _, name := range []string{"abs", "dots", "steps", "loop", "through", "empty", "h"} {
		if i, err := os.Lstat(filepath.Join(dst, name)); err == nil {
			t.Errorf("%s is %v", name, i.Mode())
		}
	}
	for _, want := range []string{`"abs": a link that leads out`, `"steps": a link that leads out`, `"through": a link that leads out`, `"l": file exists`, `"h": a link;`} {
		if !strings.Contains(strings.Join(skipped, "\n"), want) {
			t.Errorf("nothing like %s in %q", want, skipped)
		}
	}
	noWayOut(t, dst, "own")
}

// noWayOut fails if a link below dir, but for one, leads out of it.
func noWayOut(t *testing.T, dir, but string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Type() != os.ModeSymlink || d.Name() == but {
			return err
		}
		to, err := filepath.EvalSymlinks(p)
		if errors.Is(err, os.ErrNotExist) { // it may come to lead somewhere
			to, err = dangling(p)
		}
		if err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
			t.Errorf("%s leads to %s", p, to)
		}
		return nil
	}))
}

// dangling is where a link leads that leads nowhere yet.
func dangling(p string) (string, error) {
	at, err := filepath.EvalSymlinks(filepath.Dir(p))
	if err != nil {
		return "", err
	}
	to, err := os.Readlink(p)
	if err != nil || filepath.IsAbs(to) {
		return to, err
	}
	return filepath.Join(at, to), nil
}

// Several names of one file stay that, as far as they are in the tree.
func TestPackHardLinks(t *testing.T) {
	outer := t.TempDir()
	src := filepath.Join(outer, "src")
	must(t, os.Mkdir(src, 0o755))
	must(t, os.WriteFile(filepath.Join(src, "a"), []byte("abc"), 0o644))
	must(t, os.WriteFile(filepath.Join(outer, "other"), []byte("xyz"), 0o644))
	must(t, os.Link(filepath.Join(src, "a"), filepath.Join(src, "b")))
	must(t, os.Link(filepath.Join(outer, "other"), filepath.Join(src, "c")))
	var buf bytes.Buffer
	must(t, transfer.Pack(&buf, src, "top"))
	got := map[string]string{}
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		b, err := io.ReadAll(tr)
		must(t, err)
		got[h.Name] = string(h.Typeflag) + h.Linkname + string(b)
	}
	if want := map[string]string{"top/": "5", "top/a": "0abc", "top/b": "1top/a", "top/c": "0xyz"}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnpackBounds(t *testing.T) {
	big := &tar.Header{Name: "big", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	for name, b := range map[string]transfer.Options{"bytes": {Bytes: 2}, "entries": {Entries: 1}} {
		other := *big
		other.Name = "other"
		_, err := transfer.Unpack(bytes.NewReader(archive(t, big, &other)), t.TempDir(), b)
		if !errors.Is(err, transfer.ErrBounds) {
			t.Errorf("%s: %v, want ErrBounds", name, err)
		}
	}
}

// Names of entries tell of directories, too: their number and depth are bounded.
func TestUnpackDirectories(t *testing.T) {
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	}
	dst := t.TempDir()
	deep := strings.Repeat("d/", 100_000) + "f"
	dir := &tar.Header{Name: strings.Repeat("e/", 50_000), Typeflag: tar.TypeDir, Mode: 0o755}
	link := &tar.Header{Name: strings.Repeat("l/", 50_000) + "l", Typeflag: tar.TypeSymlink, Linkname: "x"}
	skipped, err := transfer.Unpack(bytes.NewReader(archive(t, reg(deep), dir, link, reg("ok"))), dst, transfer.Options{Links: true})
	if names, _ := os.ReadDir(dst); err != nil || len(skipped) != 3 || len(names) != 1 {
		t.Errorf("%d left out, %d names, %v", len(skipped), len(names), err)
	}
	var many []*tar.Header
	for i := range 10 {
		many = append(many, reg(fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 100))))
	}
	if _, err := transfer.Unpack(bytes.NewReader(archive(t, many...)), t.TempDir(), transfer.Options{Entries: 500}); !errors.Is(err, transfer.ErrBounds) {
		t.Errorf("1,000 directories of 10 entries: %v", err)
	}
	if skipped, err := transfer.Unpack(bytes.NewReader(archive(t, many...)), t.TempDir(), transfer.Options{Entries: 1010}); err != nil || len(skipped) > 0 {
		t.Errorf("as many as may be: %q, %v", skipped, err)
	}
}

// A link that leads to nothing yet can't be made to lead out by a later copy.
func TestUnpackLinksInTwoSteps(t *testing.T) {
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	outer := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outer, "outside"), []byte("canary"), 0o600))
	dst := filepath.Join(outer, "dst")
	for _, in := range [][]byte{
		archive(t, link("b", "a/../outside"), link("s/c", "../a/x/../../outside"), link("d", "a/.."), link("good", "a/y"), link("s/up", "../good")),
		archive(t, link("a", ".")),
		archive(t, link("a", "s")),
		// A link's place is through another link, which is gone when it is looked at.
		archive(t, link("p/q", ".."), link("p/q/l", "../x"), link("p/q", "nowhere")),
		archive(t, link("p/q/r", "../.."), link("p/q/r/m", "../../x"), link("p/q/r", "nowhere")),
	} {
		_, err := transfer.Unpack(bytes.NewReader(in), dst, transfer.Options{Links: true})
		must(t, err)
		noWayOut(t, dst, "")
		if b, err := os.ReadFile(filepath.Join(dst, "b")); err == nil {
			t.Errorf("the link reads %q", b)
		}
	}
	if to, err := os.Readlink(filepath.Join(dst, "s/up")); err != nil || to != "../good" {
		t.Errorf("an ordinary link: %q, %v", to, err)
	}
}

// A few bytes can't stand for a file that fills the disk.
func TestUnpackSparse(t *testing.T) {
	sparse := &tar.Header{Name: "GNUSparseFile.0/s", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	b := archive(t, sparse)
	// What package tar does not write: the file's real size and where its data is.
	var records string
	for _, r := range []string{"GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=8589934592", "GNU.sparse.numblocks=1", "GNU.sparse.map=0,3"} {
		records += fmt.Sprintf("%d %s\n", len(r)+4, r)
	}
	var x bytes.Buffer
	w := tar.NewWriter(&x)
	must(t, w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: int64(len(records))}))
	_, err := w.Write([]byte(records))
	must(t, err)
	must(t, w.Flush())
	pax := x.Bytes()
	pax[156] = tar.TypeXHeader
	checksum(pax[:512])
	dst := t.TempDir()
	skipped, err := transfer.Unpack(bytes.NewReader(append(pax, b...)), dst, transfer.Options{})
	if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0], "a sparse entry") {
		t.Errorf("%q, %v", skipped, err)
	}
	if err := transfer.UnpackFile(bytes.NewReader(append(pax, b...)), filepath.Join(dst, "f"), 0); err == nil {
		t.Error("a sparse file is taken")
	}
}

// checksum sets that of a header.
func checksum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, &tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: ".."}, &tar.Header{Name: "m", Typeflag: tar.TypeSymlink, Linkname: "d/l/../x"}))
	f.Add(archive(f, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}))
	f.Add(archive(f, &tar.Header{Name: "../a", Typeflag: tar.TypeSymlink, Linkname: "/"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		dst := filepath.Join(outer, "dst")
		_, _ = transfer.Unpack(bytes.NewReader(b), dst, transfer.Options{Bytes: 1 << 20, Entries: 100, Links: true})
		noWayOut(t, dst, "")
		if entries, _ := os.ReadDir(outer); len(entries) > 1 {
			t.Fatalf("outside the target: %v", entries)
		}
	})
}

func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, h := range headers {
		must(t, tw.WriteHeader(h))
		if h.Size > 0 {
			_, err := tw.Write([]byte("abc"))
			must(t, err)
		}
	}
	must(t, tw.Close())
	return buf.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
