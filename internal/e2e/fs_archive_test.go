package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// rawTar is an archive of one entry whose header is changed before it is sent.
func rawTar(t testing.TB, h tar.Header, change func(block []byte)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, strings.NewReader(strings.Repeat("x", int(h.Size))), h.Size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	change(raw[:512])
	copy(raw[148:156], "        ")
	sum := 0
	for _, c := range raw[:512] {
		sum += int(c)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

// hostileArchive is one that nobody should unpack as it is.
type hostileArchive struct {
	name    string
	archive []byte
	taken   bool // harmless, so it may be unpacked
}

// hostileArchives are twenty of them, for /workspace/t.
func hostileArchives(t *testing.T) []hostileArchive {
	t.Helper()
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	pack := func(hs ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	link := tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}
	big := file("big")
	big.Size = 10
	many := func() []byte {
		one := pack(tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755})[:512]
		return append(bytes.Repeat(one, 1_000_000), make([]byte, 1024)...)
	}
	longName := strings.Repeat("long/", 40) + "../../../" + strings.Repeat("../", 45) + "workspace/outside"
	return []hostileArchive{
		{"parent", pack(file("../outside")), false},
		{"absolute", pack(file("/workspace/outside")), false},
		{"link then file", pack(link, file("l/outside")), false},
		{"hard link out", pack(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}), false},
		{"device", pack(tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}), false},
		{"fifo", pack(tar.Header{Name: "p", Typeflag: tar.TypeFifo}), false},
		{"setuid", pack(tar.Header{Name: "su", Typeflag: tar.TypeReg, Mode: 0o4755}), true},
		{"PAX path", pack(tar.Header{Name: "../é/outside", Typeflag: tar.TypeReg, Format: tar.FormatPAX}), false},
		{"GNU long name", pack(tar.Header{Name: longName, Typeflag: tar.TypeReg, Format: tar.FormatGNU}), false},
		{"duplicate", pack(file("a"), file("a"), link, tar.Header{Name: "l", Typeflag: tar.TypeReg, Mode: 0o644}), true},
		{"NUL", rawTar(t, file("abcdef"), func(b []byte) { copy(b, "a\x00../b") }), true},
		{"a million entries", many(), false},
		{"negative size", rawTar(t, file("n"), func(b []byte) { copy(b[124:136], bytes.Repeat([]byte{0xff}, 12)) }), false},
		{"sparse", rawTar(t, big, func(b []byte) { b[156] = tar.TypeGNUSparse }), false},
		{"xattr", pack(tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}}), true},
		{"uid 0", pack(tar.Header{Name: "u", Typeflag: tar.TypeReg, Uid: 0, Uname: "root", Mode: 0o644}), true},
		{"5 GiB size lie", rawTar(t, big, func(b []byte) { copy(b[124:136], "50000000000\x00") }), false},
		{"directory as file", pack(tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, file("d")), false},
		{"dot", pack(tar.Header{Name: ".", Typeflag: tar.TypeSymlink, Linkname: "/"}), false},
		{"empty name", rawTar(t, file("e"), func(b []byte) { b[0] = 0 }), false},
	}
}

// unpackedWrong lists what no archive may leave behind.
const unpackedWrong = "cd /workspace; find . ! -type f ! -type d ! -type l; find . -perm /7000 ; find t -user root; getcap -r t 2>/dev/null; ls -A | grep -v -x -e t -e outside"

// TestFS06: what is unsafe of an archive is refused, and what is not stays inside.
func TestFS06(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	s := box.Session()
	box.Want("", "mkdir /workspace/t; printf safe > /workspace/outside")
	for _, c := range hostileArchives(t) {
		err := s.PutArchive(t.Context(), "/workspace/t", bytes.NewReader(c.archive), client.UnpackOptions{})
		if (err == nil) != c.taken || err != nil && !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "entry") && !strings.Contains(err.Error(), "after 0 entries") {
			t.Errorf("%s: the error does not name the entry: %v", c.name, err)
		}
	}
	if got, err := readFile(s, "/workspace/outside", client.ReadOptions{}); err != nil || got != "safe" {
		t.Errorf("a file outside of the target reads %q, %v", got, err)
	}
	res := box.Exec(sandbox.Command{Shell: unpackedWrong, User: "root"}, nil)
	if len(res.Stdout) != 0 {
		t.Errorf("there are %q", res.Stdout)
	}
}

// TestFS08: ten gigabytes in ten megabytes end at the limit, quickly, and cost
// the host no memory.
func TestFS08(t *testing.T) {
	const disk = 256 * sandbox.MiB
	box := NewBox(t, sandbox.Limits{Disk: disk})
	s := box.Session()
	bomb := gzipBomb(t)
	free := freeBytes(t)
	for name, o := range map[string]client.UnpackOptions{
		"by the limit": {Format: client.TarGz, MaxBytes: 64 << 20}, "by the disk": {Format: client.TarGz},
	} {
		before, began := status("VmRSS"), time.Now()
		err := s.PutArchive(t.Context(), "/workspace", bytes.NewReader(bomb), o)
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", name, err)
		}
		Within(t, began, 10*time.Second)
		if grown := status("VmRSS") - before; grown > 64<<20 {
			t.Errorf("%s: this process grew by %d MiB", name, grown>>20)
		}
	}
	if took := free - freeBytes(t); took > disk*3/2 { // others write, too
		t.Errorf("the host has %d MiB less", took>>20)
	}
	box.Want("", "ls /workspace")
	if err := s.PutArchive(t.Context(), "/workspace", bytes.NewReader(bomb), client.UnpackOptions{Format: "tar.zst"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a format that is not offered: %v", err)
	}
}

// gzipBomb is an archive of ten megabytes with a file of ten gigabytes.
func gzipBomb(t *testing.T) []byte {
	t.Helper()
	head := rawTar(t, tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644}, func(b []byte) { copy(b[124:136], fmt.Sprintf("%011o\x00", int64(10<<30))) })[:512]
	member := gz(t, make([]byte, 64<<20))
	bomb := append(gz(t, head), bytes.Repeat(member, 160)...)
	if len(bomb) > 16<<20 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	return bomb
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
