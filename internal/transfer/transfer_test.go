package transfer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
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
	skipped, err := transfer.Unpack(&buf, dst, transfer.Bounds{})
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
	_, err := transfer.Unpack(&buf, dst, transfer.Bounds{})
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
			_, err := transfer.Unpack(bytes.NewReader(archive(t, headers...)), dst, transfer.Bounds{})
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
		skipped, err := transfer.Unpack(bytes.NewReader(archive(t, c.headers...)), t.TempDir(), transfer.Bounds{})
		if err != nil || len(skipped) != 1 || skipped[0] != c.want {
			t.Errorf("%q, %v; want %q", skipped, err, c.want)
		}
	}
	var many []*tar.Header
	for i := range 1000 {
		many = append(many, &tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeFifo})
	}
	skipped, err := transfer.Unpack(bytes.NewReader(archive(t, many...)), t.TempDir(), transfer.Bounds{})
	if err != nil || len(skipped) != 101 || skipped[100] != "and 900 more" {
		t.Errorf("%d lines, the last is %q, %v", len(skipped), skipped[len(skipped)-1], err)
	}
}

func TestUnpackBounds(t *testing.T) {
	big := &tar.Header{Name: "big", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}
	for name, b := range map[string]transfer.Bounds{"bytes": {Bytes: 2}, "entries": {Entries: 1}} {
		other := *big
		other.Name = "other"
		_, err := transfer.Unpack(bytes.NewReader(archive(t, big, &other)), t.TempDir(), b)
		if !errors.Is(err, transfer.ErrBounds) {
			t.Errorf("%s: %v, want ErrBounds", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}))
	f.Add(archive(f, &tar.Header{Name: "../a", Typeflag: tar.TypeSymlink, Linkname: "/"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		_, _ = transfer.Unpack(bytes.NewReader(b), filepath.Join(outer, "dst"), transfer.Bounds{Bytes: 1 << 20, Entries: 100})
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
