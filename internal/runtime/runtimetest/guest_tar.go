package runtimetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

// archive makes a tar of the given headers; files hold their own name.
func archive(hs ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		_ = w.WriteHeader(&h) // to memory; a bad header shows in the test
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, h.Name)
		}
	}
	_ = w.Close()
	return b.Bytes()
}

func testTar(g *guest) {
	in := archive(
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o750},
		tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o755},
		tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "f"},
		tar.Header{Name: "d/h", Typeflag: tar.TypeLink, Linkname: "d/f"},
		tar.Header{Name: "x/y/z", Typeflag: tar.TypeReg},
		tar.Header{Name: "d/" + notUTF8, Typeflag: tar.TypeReg},
	)
	g.ok(g.s.PutArchive(g.ctx, "/tmp/tar/in", bytes.NewReader(in), client.UnpackOptions{Parents: true}))
	if got := g.read("/tmp/tar/in/d/l", client.ReadOptions{}); got != "d/f" {
		g.Errorf("read %q", got)
	}
	i, err := g.s.Stat(g.ctx, "/tmp/tar/in/d/f", client.StatOptions{})
	if err != nil || i.Mode != 0o755 || i.UID != 1000 || i.Nlink != 2 {
		g.Errorf("got %+v, %v", i, err)
	}
	r, err := g.s.GetArchive(g.ctx, "/tmp/tar/in", client.ArchiveOptions{})
	g.ok(err)
	defer r.Close()
	got := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.ok(err)
		b, err := io.ReadAll(tr)
		g.ok(err)
		got[strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")] = fmt.Sprintf("%c %s%s", h.Typeflag, h.Linkname, b)
	}
	for name, want := range map[string]string{
		"d": "5 ", "d/l": "2 f", "x/y/z": "0 x/y/z", "d/" + notUTF8: "0 d/" + notUTF8, "d/f": "0 d/f",
	} {
		if got[name] != want {
			g.Errorf("%q is %q, want %q", name, got[name], want)
		}
	}
	_, err = g.s.GetArchive(g.ctx, "/tmp/none", client.ArchiveOptions{})
	g.want("a tree that is not there", err, errdefs.IsNotFound)
}

func testHostileTar(g *guest) {
	g.write("/tmp/outside", "safe", client.WriteOptions{})
	ln := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	for name, a := range map[string][]byte{
		"parent":           archive(file("../outside")),
		"parent below":     archive(file("a/../../outside")),
		"through a link":   archive(ln("l", ".."), file("l/outside")),
		"through absolute": archive(ln("l", "/tmp"), file("l/outside")),
		"hard link out":    archive(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}, file("h")),
		"device":           archive(tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		"cut":              archive(file("f"))[:512],
		"no tar":           []byte(strings.Repeat("no tar at all ", 100)),
	} {
		err := g.s.PutArchive(g.ctx, "/tmp/hostile", bytes.NewReader(a), client.UnpackOptions{Parents: true})
		if err == nil {
			g.Errorf("%s: was taken", name)
		}
		g.ok(g.s.Remove(g.ctx, "/tmp/hostile", client.RemoveOptions{Recursive: true}))
	}
	if got := g.read("/tmp/outside", client.ReadOptions{}); got != "safe" {
		g.Errorf("a file outside was changed to %q", got)
	}
	many := archive(file("1"), file("2"), file("3"))
	err := g.s.PutArchive(g.ctx, "/tmp/many", bytes.NewReader(many), client.UnpackOptions{Parents: true, MaxEntries: 2})
	g.want("three files where two may be", err, errdefs.IsResourceExhausted)
	err = g.s.PutArchive(g.ctx, "/tmp/much", bytes.NewReader(many), client.UnpackOptions{Parents: true, MaxBytes: 2})
	g.want("three bytes where two may be", err, errdefs.IsResourceExhausted)
}
