//go:build linux

package volume

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What was a file when it was looked at may be anything when it is opened.
func TestReplacedBeforeItIsOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), []byte("harmless"), 0o644))
	must(t, os.WriteFile(at("other"), []byte("other"), 0o644))
	must(t, os.Symlink("other", at("link")))
	must(t, unix.Mkfifo(at("fifo"), 0o666)) // nobody will ever write to it
	must(t, os.Mkdir(at("dir"), 0o755))
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	st, err := statAt(d, "file")
	must(t, err)
	for _, now := range []string{"other", "link", "fifo", "dir", "nothing"} {
		var b bytes.Buffer
		out := &recorder{w: &b}
		p := packer{ctx: t.Context(), out: out, tw: tar.NewWriter(out), bounds: Bounds{}.orDefault(), links: newLinks(maxLinked)}
		if err := p.file(d, now, &tar.Header{Name: now}, st); err != nil {
			t.Errorf("%s: %v", now, err)
		}
		if b.Len() != 0 || len(p.skips.List()) != 1 {
			t.Errorf("%s: %d bytes were written, left out: %q", now, b.Len(), p.skips.List())
		}
	}
}

// A tree full of files with several names takes bounded memory: what can't be
// remembered comes as a file of its own, and what was met whole makes room.
func TestManyLinks(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 200)
	top, err := os.Open(dir)
	must(t, err)
	defer top.Close()
	const files = 50
	for i := range files {
		name := fmt.Sprint(i, "-", long)
		for _, sub := range []string{"a", "b"} {
			must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		}
		must(t, os.WriteFile(filepath.Join(dir, "a", name), []byte(name), 0o644))
		must(t, os.Link(filepath.Join(dir, "a", name), filepath.Join(dir, "b", name)))
	}
	for most, want := range map[int]int{maxLinked: files, 10 * (len("a/00-"+long) + linkedCost): 10, 0: 0} {
		var b bytes.Buffer
		out := &recorder{w: &b}
		p := packer{ctx: t.Context(), out: out, tw: tar.NewWriter(out), bounds: Bounds{}.orDefault(), links: newLinks(most)}
		_, err := top.Seek(0, io.SeekStart)
		must(t, err)
		must(t, p.dir(top, "", 1))
		must(t, p.tw.Close())
		if p.links.left != most && most == maxLinked {
			t.Errorf("of %d bytes %d are free in the end", most, p.links.left)
		}
		count := map[byte]int{}
		for r := tar.NewReader(&b); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			count[h.Typeflag]++
			body, err := io.ReadAll(r)
			must(t, err)
			if h.Typeflag == tar.TypeReg && string(body) != filepath.Base(h.Name) {
				t.Errorf("%s has %q", h.Name, body)
			}
		}
		if got := count[tar.TypeLink]; got != want || got+count[tar.TypeReg] != 2*files || len(p.skips.List()) > 0 {
			t.Errorf("with %d bytes: %v, want %d links; left out: %q", most, count, want, p.skips.List())
		}
	}
}

// An archive waits for its turn, as long as somebody waits for it. An owner whose
// archives take for ever keeps nobody else waiting.
func TestArchivesWait(t *testing.T) {
	v := &Volumes{archives: newTurns(maxArchives)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(owner string) func() {
		t.Helper()
		leave, err := v.archives.take(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	var leave []func()
	for range maxArchives / 4 {
		leave = append(leave, take("slow"))
	}
	if _, err := v.Backup(over, "slow", "data", io.Discard, Bounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more of an owner: %v", err)
	}
	for _, owner := range []string{"a", "b", "c"} {
		leave = append(leave, take(owner), take(owner))
	}
	if _, err := v.Backup(over, "d", "data", io.Discard, Bounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more than may be: %v", err)
	}
	for _, f := range leave {
		f()
	}
	take("slow")()
	if len(v.archives.of) != 0 || len(v.archives.all) != 0 {
		t.Errorf("left: %v, %d", v.archives.of, len(v.archives.all))
	}
}

func FuzzUnpack(f *testing.F) {
	pack := func(headers ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	f.Add(pack(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644}))
	f.Add(pack(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, &tar.Header{Name: "l/x", Typeflag: tar.TypeReg}))
	f.Add(pack(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, &tar.Header{Name: "l/x/", Typeflag: tar.TypeDir}))
	f.Add(pack(&tar.Header{Name: "../a", Typeflag: tar.TypeLink, Linkname: "../b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		inner := filepath.Join(outer, "in")
		must(t, os.Mkdir(inner, 0o700))
		root, err := os.OpenRoot(inner)
		must(t, err)
		defer root.Close()
		u := unpacker{root: root, bounds: Bounds{Bytes: 1 << 20, Entries: 100}, uid: os.Getuid(), gid: os.Getgid(), ids: 1}
		_ = u.all(t.Context(), bytes.NewReader(b))
		if names, _ := os.ReadDir(outer); len(names) != 1 {
			t.Fatalf("outside: %v", names)
		}
		must(t, filepath.Walk(inner, func(p string, i os.FileInfo, err error) error {
			if err == nil && i.Mode()&^(os.ModeDir|os.ModeSymlink|os.ModePerm) != 0 {
				t.Errorf("%q has mode %v", p, i.Mode())
			}
			return nil
		}))
	})
}
