package runtimetest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
)

// fetch reads an archive to its end.
func (g *guest) fetch(name string, o client.ArchiveOptions) ([]byte, client.Skipped) {
	g.Helper()
	r, err := g.s.GetArchive(g.ctx, name, o)
	g.ok(err)
	defer r.Close()
	b, err := io.ReadAll(r)
	g.ok(err)
	return b, r.Skipped()
}

// tarNames lists what is in a tar archive, with the contents.
func (g *guest) tarNames(b []byte) (list []string) {
	g.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		g.ok(err)
		body, err := io.ReadAll(r)
		g.ok(err)
		list = append(list, h.Name+h.Linkname+string(body))
	}
}

func testArchiveFormats(g *guest) {
	g.sh("mkdir -p /tmp/af/d; cd /tmp/af; printf one > 'a b'; printf two > d/f; chmod 750 d/f; ln -s f d/l")
	want := []string{"a bone", "d/", "d/ftwo", "d/lf"}
	plain, _ := g.fetch("/tmp/af", client.ArchiveOptions{})
	if got := g.tarNames(plain); !slices.Equal(got, want) {
		g.Errorf("tar: got %q", got)
	}
	packed, _ := g.fetch("/tmp/af", client.ArchiveOptions{Format: client.TarGz})
	z, err := gzip.NewReader(bytes.NewReader(packed))
	g.ok(err)
	b, err := io.ReadAll(z)
	g.ok(err)
	if got := g.tarNames(b); !slices.Equal(got, want) {
		g.Errorf("tar.gz: got %q", got)
	}
	g.ok(g.s.PutArchive(g.ctx, "/tmp/af2", bytes.NewReader(packed), client.UnpackOptions{Format: client.TarGz, Parents: true}))
	again, _ := g.fetch("/tmp/af2", client.ArchiveOptions{})
	if got := g.tarNames(again); !slices.Equal(got, want) {
		g.Errorf("what came back is %q", got)
	}
	b, _ = g.fetch("/tmp/af", client.ArchiveOptions{Format: client.Zip})
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	g.ok(err)
	var got []string
	for _, f := range r.File {
		c, err := f.Open()
		g.ok(err)
		body, err := io.ReadAll(c)
		g.ok(err)
		got = append(got, fmt.Sprintf("%s %v %s", f.Name, f.Mode(), body))
	}
	if want := []string{"a b -rw-r--r-- one", "d/ drwxr-xr-x ", "d/f -rwxr-x--- two", "d/l Lrwxrwxrwx f"}; !slices.Equal(got, want) {
		g.Errorf("zip: got %q", got)
	}
	one, _ := g.fetch("/tmp/af/a b", client.ArchiveOptions{})
	if got := g.tarNames(one); !slices.Equal(got, []string{"a bone"}) {
		g.Errorf("one file: got %q", got)
	}
	_, err = g.s.GetArchive(g.ctx, "/tmp/af", client.ArchiveOptions{Format: "rar"})
	g.want("a format that is none", err, errdefs.IsInvalidArgument)
}

func testArchiveOptions(g *guest) {
	g.sh("mkdir -p /tmp/ao/d/e /tmp/ao/node_modules/m; cd /tmp/ao; printf 1 > d/x; printf 2 > d/e/y; printf 3 > node_modules/m/z; printf 4 > top")
	b, _ := g.fetch("/tmp/ao", client.ArchiveOptions{Prefix: "p/q", Exclude: []string{"node_modules", "d/e"}})
	if got := g.tarNames(b); !slices.Equal(got, []string{"p/q/", "p/q/d/", "p/q/d/x1", "p/q/top4"}) {
		g.Errorf("got %q", got)
	}
	g.ok(g.s.PutArchive(g.ctx, "/tmp/ao2", bytes.NewReader(b), client.UnpackOptions{Parents: true, Strip: 2}))
	if got := g.names("/tmp/ao2", client.ListOptions{Depth: 5}); !slices.Equal(got, []string{"d", "x", "top"}) {
		g.Errorf("stripped: got %q", got)
	}
	for _, prefix := range []string{"../x", "/x", "a/../../x"} {
		_, err := g.s.GetArchive(g.ctx, "/tmp/ao", client.ArchiveOptions{Prefix: prefix})
		g.want("prefix "+prefix, err, errdefs.IsInvalidArgument)
	}
}

// testArchiveSkips: FS-10, as far as the agent does it.
func testArchiveSkips(g *guest) {
	g.sh("mkdir -p /tmp/as/shut; cd /tmp/as; printf 12345 > a; printf 12345678901 > big; printf 123 > c; mkfifo p; printf x > denied; chmod 0 denied shut; ln -s /etc/passwd l")
	b, left := g.fetch("/tmp/as", client.ArchiveOptions{MaxBytes: 10})
	if got := g.tarNames(b); !slices.Equal(got, []string{"a12345", "c123", "l/etc/passwd", "shut/"}) {
		g.Errorf("got %q", got)
	}
	want := []client.SkippedFile{{Path: "big", Reason: client.SkipSize}, {Path: "denied", Reason: client.SkipDenied}, {Path: "p", Reason: client.SkipFIFO}, {Path: "shut", Reason: client.SkipDenied}}
	if left.Total != 4 || !slices.Equal(left.First, want) {
		g.Errorf("left out: %+v", left)
	}
	b, left = g.fetch("/tmp/as", client.ArchiveOptions{MaxEntries: 2, User: "root"})
	if got := g.tarNames(b); !slices.Equal(got, []string{"a12345", "big12345678901"}) || left.Total != 5 || left.First[0].Reason != client.SkipCount {
		g.Errorf("got %q, left out: %+v", got, left)
	}
}

// testArchiveBomb: FS-08. What a small upload expands to ends at the limit.
func testArchiveBomb(g *guest) {
	bomb := gzipBomb(256)
	err := g.s.PutArchive(g.ctx, "/tmp", bytes.NewReader(bomb), client.UnpackOptions{Format: client.TarGz, MaxBytes: 1 << 20})
	g.want("256 MiB where 1 may be", err, errdefs.IsResourceExhausted)
	err = g.s.PutArchive(g.ctx, "/tmp", bytes.NewReader(bomb), client.UnpackOptions{Format: client.TarGz})
	g.want("256 MiB on a disk of 64", err, errdefs.IsResourceExhausted)
	if _, err := g.s.Stat(g.ctx, "/tmp/bomb", client.StatOptions{}); !errdefs.IsNotFound(err) {
		g.Errorf("a part of the bomb stayed: %v", err)
	}
	sparse := archive(tar.Header{Name: "s", Typeflag: tar.TypeReg})
	sparse[156] = tar.TypeGNUSparse
	err = g.s.PutArchive(g.ctx, "/tmp", strings.NewReader(string(sparse)), client.UnpackOptions{})
	g.want("a sparse entry", err, errdefs.IsInvalidArgument)
}

// gzipBomb is an archive of one file, mib MiB of zeros. One of them is compressed,
// and stands there mib times: to compress them all takes most of a minute where races
// are looked for.
func gzipBomb(mib int) []byte {
	zeros := make([]byte, 1<<20)
	end := zeros[:1024]
	var head, b bytes.Buffer
	_ = tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(mib) << 20}) // to memory
	b.WriteString("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")
	z, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is one
	part := func(content []byte) []byte {
		before := b.Len()
		_, _ = z.Write(content) // a buffer takes all
		_ = z.Flush()
		return b.Bytes()[before:]
	}
	part(head.Bytes())
	part(zeros)
	again := bytes.Clone(part(zeros)) // has none but zeros before it, as the next one
	sum := crc32.NewIEEE()
	sum.Write(head.Bytes())
	for i := range mib {
		sum.Write(zeros)
		if i >= 2 {
			b.Write(again)
		}
	}
	part(end)
	_ = z.Close()
	sum.Write(end)
	trailer := binary.LittleEndian.AppendUint32(nil, sum.Sum32())
	return append(b.Bytes(), binary.LittleEndian.AppendUint32(trailer, uint32(head.Len()+mib<<20+len(end)))...)
}
