package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentbox/internal/image"
	"agentbox/internal/image/erofs"
	"agentbox/internal/image/erofs/erofstest"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
)

// entry is a tar entry; the Linkname of a regular file is its content.
type entry = tar.Header

func file(name, content string) entry {
	return entry{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}
func soft(name, target string) entry {
	return entry{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}
func hard(name, target string) entry {
	return entry{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}
func folder(name string) entry { return entry{Typeflag: tar.TypeDir, Name: name} }
func pax(name string, records map[string]string) entry {
	return entry{Typeflag: tar.TypeReg, Name: name, PAXRecords: records}
}

// layerOf makes a layer of entries.
func layerOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// patched changes the first header of a layer and mends its checksum.
func patched(layer []byte, off int, field string) []byte {
	b := slices.Clone(layer)
	copy(b[off:], field)
	copy(b[148:156], "        ") // the checksum counts as blanks
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// record is one PAX record, whose length counts itself.
func record(key, value string) string {
	n := len(key) + len(value) + 3
	for i := n; ; i++ {
		if s := fmt.Sprintf("%d %s=%s\n", i, key, value); len(s) == i {
			return s
		}
	}
}

// Offsets in a tar header: POSIX, pax, "ustar Interchange Format".
const (
	sizeField = 124
	typeField = 156
)

// repeated is a compressed stream of n times the same member or frame.
func repeated(member []byte, n int) []byte { return bytes.Repeat(member, n) }

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zstded(b []byte) []byte {
	w, _ := zstd.NewWriter(nil) // without options it can't fail
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// hostileArchive is what "docker save" would write for layers; diffID replaces
// the digests of their uncompressed content where it would take too long.
func hostileArchive(t *testing.T, diffID string, layers ...[]byte) []byte {
	t.Helper()
	var ids, names []string
	var members []entry
	for i, l := range layers {
		id := diffID
		if id == "" {
			sum := sha256.Sum256(l)
			id = "sha256:" + hex.EncodeToString(sum[:])
		}
		name := fmt.Sprintf("%d/layer.tar", i)
		ids, names, members = append(ids, id), append(names, name), append(members, file(name, string(l)))
	}
	config, _ := json.Marshal(map[string]any{"os": "linux", "architecture": "amd64", "rootfs": map[string]any{"type": "layers", "diff_ids": ids}})
	manifest, _ := json.Marshal([]map[string]any{{"Config": "c.json", "RepoTags": []string{"evil:1"}, "Layers": names}})
	return layerOf(t, append(members, file("c.json", string(config)), file("manifest.json", string(manifest)))...)
}

const noDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// hostileRow is a set of layers and what becomes of it.
type hostileRow struct {
	name   string
	layers [][]byte
	// refused is the class of the error; nil: the image is made, and harmless.
	refused func(error) bool
	// want are files of the image with their content; "-" means none.
	want   map[string]string
	diffID string
}

func hostileRows(t *testing.T, outside string) []hostileRow {
	one := func(entries ...entry) [][]byte { return [][]byte{layerOf(t, entries...)} }
	invalid, exhausted := errdefs.IsInvalidArgument, errdefs.IsResourceExhausted
	deep := strings.Repeat("d/", 5000) + "f"
	hops := []entry{folder("end")}
	for i := range 60 {
		target := fmt.Sprint("l", i-1)
		if i == 0 {
			target = "end"
		}
		hops = append(hops, soft(fmt.Sprint("l", i), target))
	}
	base := layerOf(t, file("keep", "kept"), file("d/x", "x"), soft("out", outside))
	device := func(kind byte, major, minor int64) entry {
		return entry{Typeflag: kind, Name: "dev0", Devmajor: major, Devminor: minor}
	}
	zeros := make([]byte, 16<<20)
	return []hostileRow{
		{name: "dotdot", layers: one(file("../../../../../.."+outside+"/pwn", "x")), want: map[string]string{outside + "/pwn": "x"}},
		{name: "absolute", layers: one(file(outside+"/canary", "x")), want: map[string]string{outside + "/canary": "x"}},
		{name: "through a link out", layers: one(soft("l", outside), file("l/canary", "x")), want: map[string]string{outside + "/canary": "x"}},
		{name: "through a relative link out", layers: one(soft("a/l", "../../../../../../.."+outside), file("a/l/canary", "x")), want: map[string]string{outside + "/canary": "x"}},
		{name: "through links to links", layers: one(soft("b", outside), soft("a", "b"), file("a/canary", "x"), file("a/../keep", "x"))},
		{name: "directory over a link out", layers: one(soft("l", outside), folder("l"), file("l/canary", "x")), want: map[string]string{"/l/canary": "x"}},
		{name: "link loop", layers: one(soft("a", "b"), soft("b", "a"), file("a/x", "x")), refused: invalid},
		{name: "too many links", layers: one(append(hops, file("l59/x", "x"))...), refused: invalid},
		{name: "link in an upper layer", layers: [][]byte{base, layerOf(t, file("out/canary", "x"))}, want: map[string]string{outside + "/canary": "x"}},
		{name: "hard link out", layers: one(hard("h", outside+"/canary")), refused: invalid},
		{name: "hard link out, relative", layers: one(hard("h", "../../../../../.."+outside+"/canary")), refused: invalid},
		{name: "hard link to a directory", layers: one(folder("d"), hard("h", "d")), refused: invalid},
		{name: "hard link to a link out, written through", layers: one(soft("l", outside+"/canary"), hard("h", "l"), file("h", "x")), want: map[string]string{"/h": "x"}},
		{name: "hard link through a link out", layers: one(soft("l", outside), hard("h", "l/canary")), refused: invalid},
		{name: "hard link to itself", layers: one(hard("h", "h")), refused: invalid},
		{name: "empty name", layers: [][]byte{patched(layerOf(t, file("x", "")), 0, "\x00")}, refused: invalid},
		{name: "root as a file", layers: one(file(".", "x")), refused: invalid},
		{name: "root as a link", layers: one(soft("./", outside)), refused: invalid},
		{name: "empty link", layers: [][]byte{patched(layerOf(t, soft("l", "x")), 157, "\x00")}, refused: invalid},
		{name: "memory as a device", layers: one(device(tar.TypeChar, 1, 1))},
		{name: "disk as a device", layers: one(device(tar.TypeBlock, 8, 0))},
		{name: "device with a huge number", layers: one(entry{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1 << 33, Format: tar.FormatGNU}), refused: invalid},
		{name: "FIFO", layers: one(entry{Typeflag: tar.TypeFifo, Name: "etc/passwd"})},
		{name: "owner out of range", layers: one(entry{Typeflag: tar.TypeReg, Name: "f", Uid: 1 << 40}), refused: invalid},
		{name: "one name twice", layers: one(file("f", "first"), file("f", "second")), want: map[string]string{"/f": "second"}},
		{name: "a file becomes a directory", layers: one(file("f", "x"), folder("f"), file("f/g", "y")), want: map[string]string{"/f/g": "y"}},
		{name: "below a file", layers: one(file("f", "x"), file("f/g", "y")), refused: invalid},
		{name: "a directory becomes a file", layers: one(file("d/x", "x"), file("d", "y")), want: map[string]string{"/d": "y", "/d/x": "-"}},
		{name: "bad PAX records", layers: [][]byte{patched(layerOf(t, file("p", "99 path=zz\n")), typeField, "x")}, refused: invalid},
		{name: "PAX path", layers: [][]byte{patched(layerOf(t, file("p", record("path", "../../.."+outside+"/canary")), file("f", "")), typeField, "x")}, want: map[string]string{outside + "/canary": ""}},
		{name: "PAX records without end", layers: [][]byte{patched(layerOf(t, file("p", strings.Repeat("x", 2<<20))), typeField, "x")}, refused: invalid},
		{name: "extended attributes", layers: one(pax("f", map[string]string{"SCHILY.xattr.security.capability": strings.Repeat("x", 60000), "SCHILY.xattr.user.a": strings.Repeat("y", 60000)})), want: map[string]string{"/f": ""}},
		{name: "negative size", layers: [][]byte{patched(layerOf(t, file("f", "x")), sizeField, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")}, refused: invalid},
		{name: "5 TiB that are not there", layers: [][]byte{patched(layerOf(t, file("f", "x")), sizeField, "\x80\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00")}, refused: exhausted},
		{name: "1 GiB that is not there", layers: [][]byte{patched(layerOf(t, file("f", "x")), sizeField, "10000000000\x00")}, refused: invalid},
		{name: "unknown type", layers: [][]byte{patched(layerOf(t, file("f", "x")), typeField, "Z")}, refused: invalid},
		{name: "deep", layers: one(file(deep, "x")), refused: exhausted},
		{name: "long name", layers: one(file(strings.Repeat("n", 300), "x")), refused: invalid},
		{name: "whiteout of the parent", layers: [][]byte{base, layerOf(t, file("d/.wh...", ""))}, refused: invalid},
		{name: "whiteout of itself", layers: [][]byte{base, layerOf(t, file("d/.wh..", ""))}, refused: invalid},
		{name: "whiteout of nothing", layers: [][]byte{base, layerOf(t, file("d/.wh.", ""))}, refused: invalid},
		{name: "whiteout with data", layers: [][]byte{base, layerOf(t, file(".wh.keep", "x"))}, refused: invalid},
		{name: "whiteout through a link out", layers: [][]byte{base, layerOf(t, file("out/.wh.canary", ""), file("out/.wh..wh..opq", ""))}, want: map[string]string{"/keep": "kept"}},
		{name: "opaque root", layers: [][]byte{base, layerOf(t, file(".wh..wh..opq", ""), file("new", "n"))}, want: map[string]string{"/keep": "-", "/new": "n"}},
		{name: "opaque through dotdot", layers: [][]byte{base, layerOf(t, file("d/../../.wh..wh..opq", ""))}, want: map[string]string{"/keep": "-"}},
		{name: "marks of AUFS", layers: [][]byte{base, layerOf(t, folder(".wh..wh.plnk"), file(".wh..wh.aufs", ""))}, want: map[string]string{"/keep": "kept", "/.wh..wh.plnk": "-"}},
		{name: "whiteouts that hide marks", layers: [][]byte{base, layerOf(t, file(".wh..wh..wh..opq", ""))}, want: map[string]string{"/keep": "kept"}},
		{name: "agent", layers: one(file(image.AgentPath, "mine"), soft("proc", outside), soft("tmp", outside), soft("etc", outside), soft("workspace", outside)),
			want: map[string]string{image.AgentPath: "agent 1", outside + "/hostname": "sandbox\n"}},
		{name: "links where the agent goes", layers: one(soft(".agentbox", outside), soft("dev", outside), soft("run", "/proc/self"), soft("sys", "sys")), want: map[string]string{image.AgentPath: "agent 1"}},
		{name: "cut tar", layers: [][]byte{layerOf(t, file("f", strings.Repeat("x", 2000)))[:1500]}, refused: invalid},
		{name: "no tar", layers: [][]byte{bytes.Repeat([]byte("junk "), 1000)}, refused: invalid},
		{name: "nothing", layers: [][]byte{{}}},
		{name: "cut gzip", layers: [][]byte{gzipped(base)[:60]}, diffID: noDigest, refused: invalid},
		{name: "bad zstd", layers: [][]byte{append([]byte("\x28\xb5\x2f\xfd"), "junk junk junk"...)}, diffID: noDigest, refused: func(err error) bool { return invalid(err) || exhausted(err) }},
		{name: "zstd that wants 2 TiB", layers: [][]byte{[]byte("\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")}, diffID: noDigest, refused: exhausted},
		{name: "gzip of 10 GiB behind the end", layers: [][]byte{append(gzipped(base), repeated(gzipped(zeros), 640)...)}, diffID: noDigest, refused: invalid},
		{name: "zstd of 10 GiB of zeros", layers: [][]byte{repeated(zstded(zeros), 640)}, diffID: noDigest, refused: invalid},
		{name: "other content than named", layers: [][]byte{gzipped(base)}, diffID: noDigest, refused: errdefs.IsDataLoss},
		{name: "other content than named, not compressed", layers: [][]byte{base}, diffID: noDigest, refused: errdefs.IsDataLoss},
		{name: "too many layers", layers: slices.Repeat([][]byte{base}, 600), refused: exhausted},
	}
}

// Whatever layers hold, nothing outside changes, and an image that is refused
// leaves nothing.
func TestHostileLayers(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := hostileRows(t, outside)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, agent(t, "1"))
			got, err := s.Load(t.Context(), bytes.NewReader(hostileArchive(t, row.diffID, row.layers...)), image.LoadOptions{Platform: "linux/amd64"})
			switch {
			case row.refused == nil && err != nil:
				t.Errorf("refused: %v", err)
			case row.refused == nil:
				checkHostile(t, read(t, got[0]), row.want)
				if err := s.Remove("evil:1"); err != nil {
					t.Error(err)
				}
			case !row.refused(err):
				t.Errorf("error is %v", err)
			case len(err.Error()) > 1000:
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left %v", left)
			}
			all, err := os.ReadDir(outside)
			text, _ := os.ReadFile(filepath.Join(outside, "canary"))
			if err != nil || len(all) != 1 || string(text) != "alive" {
				t.Errorf("outside there are %v, %q, %v", all, text, err)
			}
		})
	}
}

func checkHostile(t *testing.T, nodes map[string]erofstest.Node, want map[string]string) {
	t.Helper()
	for path, content := range want {
		n, ok := nodes[path]
		switch {
		case content == "-" && ok:
			t.Errorf("%s is there", path)
		case content != "-" && (!ok || string(n.Data) != content || n.Mode&erofs.TypeMask != erofs.TypeRegular):
			t.Errorf("%s holds %q, %v, want %q", path, n.Data, ok, content)
		}
	}
	if string(nodes[image.AgentPath].Data) != "agent 1" {
		t.Error("the agent is not ours")
	}
}

// A sparse file of 10 GiB takes neither the disk nor the tar of anybody.
func TestSparseFile(t *testing.T) {
	gnutar, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("there is no tar here")
	}
	const size = 10 << 30
	from := t.TempDir()
	f, err := os.Create(filepath.Join(from, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("end"), size-3)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"gnu", "pax"} {
		out, err := exec.Command(gnutar, "--sparse", "--format="+format, "-C", from, "-c", "hole").Output()
		if err != nil || len(out) > 1<<20 {
			t.Skipf("this tar makes no sparse archive: %d bytes, %v", len(out), err)
		}
		dir := t.TempDir()
		s := open(t, dir, agent(t, "1"))
		got, err := s.Load(t.Context(), bytes.NewReader(hostileArchive(t, "", out)), image.LoadOptions{Platform: "linux/amd64"})
		if err != nil || got[0].Size < size {
			t.Fatalf("loaded %+v, %v", got, err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(got[0].Path, &st); err != nil || st.Blocks*512 > 8<<20 {
			t.Errorf("%s: it takes %d bytes of the disk, %v", format, st.Blocks*512, err)
		}
		img, err := os.Open(got[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		tail := make([]byte, 1<<20)
		n, err := img.ReadAt(tail, st.Size-int64(len(tail)))
		img.Close()
		if err != nil || !bytes.Contains(tail[:n], []byte("end")) {
			t.Errorf("%s: the file's end is lost: %v", format, err)
		}
		if format == "gnu" && testing.Short() {
			break
		}
	}
}

// A million entries are an image; their memory and disk are bounded.
func TestMillionEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("a million entries take some seconds")
	}
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(z, sum))
	for i := range 1_000_000 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("%d/%d", i%1000, i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	archive := hostileArchive(t, "sha256:"+hex.EncodeToString(sum.Sum(nil)), b.Bytes())
	got, err := s.Load(t.Context(), bytes.NewReader(archive), image.LoadOptions{Platform: "linux/amd64"})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Size > 200<<20 {
		t.Errorf("a million names take %d bytes", got[0].Size)
	}
	if err := s.Remove("evil:1"); err != nil {
		t.Error(err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
