package erofs_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/image/erofs"

	"github.com/containerd/errdefs"
)

// layer makes a tar of headers; the Linkname of a regular file is its content.
func layer(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o755
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

func reg(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}
func folder(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
func soft(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}
func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

// applied returns the names of an image made of layers, files with their
// content.
func applied(t testing.TB, layers ...[]byte) map[string]string {
	t.Helper()
	nodes := mustRead(t, func(w *erofs.Writer) error {
		for _, l := range layers {
			if err := w.AddLayer(bytes.NewReader(l)); err != nil {
				return err
			}
		}
		return nil
	})
	got := map[string]string{}
	for p, n := range nodes {
		switch {
		case p == "/":
		case n.Mode&erofs.TypeMask == erofs.TypeDir:
			got[p] = "dir"
		default:
			got[p] = string(n.Data)
		}
	}
	return got
}

func TestLayers(t *testing.T) {
	base := layer(t, folder("d"), reg("d/a", "1"), reg("d/b", "1"), folder("d/sub"), reg("d/sub/x", "1"), reg("f", "1"), hard("d/h", "f"), soft("lib", "usr/lib"), reg("usr/lib/l", "1"))
	for name, c := range map[string]struct {
		upper [][]byte
		want  map[string]string // what differs; "" is gone
	}{
		"whiteout of a file":              {[][]byte{layer(t, reg("d/.wh.a", ""))}, map[string]string{"/d/a": ""}},
		"whiteout of a directory":         {[][]byte{layer(t, reg(".wh.d", ""))}, map[string]string{"/d": "", "/d/a": "", "/d/b": "", "/d/h": "", "/d/sub": "", "/d/sub/x": ""}},
		"whiteout after its own file":     {[][]byte{layer(t, reg("d/a", "2"), reg("d/.wh.a", ""))}, map[string]string{"/d/a": "2"}},
		"whiteout before its own file":    {[][]byte{layer(t, reg("d/.wh.a", ""), reg("d/a", "2"))}, map[string]string{"/d/a": "2"}},
		"directory made anew":             {[][]byte{layer(t, folder("d"), reg("d/n", "2"), reg(".wh.d", ""))}, map[string]string{"/d/n": "2", "/d/a": "", "/d/b": "", "/d/h": "", "/d/sub": "", "/d/sub/x": ""}},
		"opaque first":                    {[][]byte{layer(t, folder("d"), reg("d/.wh..wh..opq", ""), reg("d/n", "2"))}, map[string]string{"/d/n": "2", "/d/a": "", "/d/b": "", "/d/h": "", "/d/sub": "", "/d/sub/x": ""}},
		"opaque last":                     {[][]byte{layer(t, folder("d"), reg("d/n", "2"), reg("d/sub/n", "2"), reg("d/.wh..wh..opq", ""))}, map[string]string{"/d/n": "2", "/d/sub/n": "2", "/d/a": "", "/d/b": "", "/d/h": "", "/d/sub/x": ""}},
		"opaque root":                     {[][]byte{layer(t, reg("n", "2"), reg(".wh..wh..opq", ""))}, map[string]string{"/n": "2", "/d": "", "/d/a": "", "/d/b": "", "/d/h": "", "/d/sub": "", "/d/sub/x": "", "/f": "", "/lib": "", "/usr": "", "/usr/lib": "", "/usr/lib/l": ""}},
		"whiteout of nothing":             {[][]byte{layer(t, reg("no/where/.wh.x", ""), reg("f/.wh.x", ""))}, nil},
		"marks of AUFS":                   {[][]byte{layer(t, folder(".wh..wh.plnk"), reg(".wh..wh.aufs", ""))}, nil},
		"whiteout through a link":         {[][]byte{layer(t, reg("lib/.wh.l", ""))}, map[string]string{"/usr/lib/l": ""}},
		"file through a link":             {[][]byte{layer(t, reg("lib/n", "2"))}, map[string]string{"/usr/lib/n": "2"}},
		"hard link keeps the old content": {[][]byte{layer(t, reg("f", "2"))}, map[string]string{"/f": "2"}},
		"hard link to a lower layer":      {[][]byte{layer(t, hard("n", "d/a"), reg("d/.wh.a", ""))}, map[string]string{"/n": "1", "/d/a": ""}},
		"three layers":                    {[][]byte{layer(t, reg(".wh.d", "")), layer(t, reg("d/a", "3"))}, map[string]string{"/d/a": "3", "/d/b": "", "/d/h": "", "/d/sub": "", "/d/sub/x": ""}},
		"names that look outside":         {[][]byte{layer(t, reg("../../x", "2"), reg("/y", "2"), reg("d/../../.wh.f", ""))}, map[string]string{"/x": "2", "/y": "2", "/f": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			want := applied(t, base)
			for p, content := range c.want {
				if want[p] = content; content == "" {
					delete(want, p)
				}
			}
			if got := applied(t, append([][]byte{base}, c.upper...)...); !maps.Equal(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
		})
	}
}

// Data that an upper layer replaces takes no space on the disk any more.
func TestReplacedDataIsZero(t *testing.T) {
	img, err := build(t, erofs.Limits{}, addAll(file("f", strings.Repeat("old", 5000)), file("f", "new")))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(img, []byte("oldold")) {
		t.Error("the replaced content is still there")
	}
}

func TestHostileLayers(t *testing.T) {
	good := layer(t, reg("f", strings.Repeat("x", 5000)), reg("g", "y"))
	global := layer(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}})
	unknown := layer(t, reg("f", "abc"))
	unknown[156] = 'Z' // the type
	fixChecksum(unknown)
	for name, c := range map[string]struct {
		data []byte
		is   func(error) bool
		says string
	}{
		"cut off in a file":    {good[:1000], errdefs.IsInvalidArgument, "f"},
		"cut off in a header":  {good[:100], errdefs.IsInvalidArgument, ""},
		"garbage":              {bytes.Repeat([]byte("garbage "), 200), errdefs.IsInvalidArgument, ""},
		"empty":                {nil, func(err error) bool { return err == nil }, ""},
		"global header":        {global, func(err error) bool { return err == nil }, ""},
		"unknown type":         {unknown, errdefs.IsInvalidArgument, "'Z'"},
		"whiteout of dots":     {layer(t, reg("d/.wh...", "")), errdefs.IsInvalidArgument, ".wh..."},
		"whiteout of nothing":  {layer(t, reg(".wh.", "")), errdefs.IsInvalidArgument, ".wh."},
		"whiteout with data":   {layer(t, reg(".wh.x", "data")), errdefs.IsInvalidArgument, ".wh.x"},
		"file over the root":   {layer(t, reg(".", "x")), errdefs.IsInvalidArgument, "root"},
		"link to itself":       {layer(t, hard("a", "a")), errdefs.IsInvalidArgument, "hard link"},
		"link to a directory":  {layer(t, folder("d"), hard("a", "d")), errdefs.IsInvalidArgument, "hard link"},
		"parent is a file":     {layer(t, reg("a", ""), reg("a/b", "")), errdefs.IsInvalidArgument, `"/a/"`},
		"a name of 300 bytes":  {layer(t, reg(strings.Repeat("n", 300), "")), errdefs.IsInvalidArgument, "255"},
		"2,000 deep":           {layer(t, reg(strings.Repeat("d/", 2000)+"f", "")), errdefs.IsResourceExhausted, "nested"},
		"a size that is a lie": {lie(layer(t, reg("f", "abc")), 1<<62), errdefs.IsResourceExhausted, "bigger"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := build(t, erofs.Limits{}, func(w *erofs.Writer) error { return w.AddLayer(bytes.NewReader(c.data)) })
			if !c.is(err) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v", err)
			}
		})
	}
	t.Run("error of the source", func(t *testing.T) {
		broken := io.MultiReader(bytes.NewReader(good[:1000]), failing{})
		_, err := build(t, erofs.Limits{}, func(w *erofs.Writer) error { return w.AddLayer(broken) })
		if !errdefs.IsUnavailable(err) || errdefs.IsInvalidArgument(err) {
			t.Errorf("got error %v", err)
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) {
	return 0, fmt.Errorf("the disk: %w", errdefs.ErrUnavailable)
}

// lie changes the size in the first header, in GNU's base-256 form.
func lie(b []byte, size uint64) []byte {
	for i := range 8 {
		b[124+4+i] = byte(size >> (56 - 8*i))
	}
	b[124], b[125], b[126], b[127] = 0x80, 0, 0, 0
	copy(b[257:], "ustar  \x00")
	return fixChecksum(b)
}

func fixChecksum(b []byte) []byte {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// Random layers against a model that applies the markers of a layer before its
// files, which is what their order in the stream must not change.
func TestRandomLayersAgainstModel(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		model := map[string]string{}
		var layers [][]byte
		for range 1 + rnd.IntN(4) {
			files, markers := randomLayer(rnd)
			below := maps.Clone(model)
			for _, m := range markers {
				modelMarker(below, m.Name)
			}
			model = below
			for _, f := range files {
				modelAdd(model, "/"+f.Name, f)
			}
			all := slices.Clone(files)
			for _, m := range markers { // anywhere, files stay in order
				all = slices.Insert(all, rnd.IntN(len(all)+1), m)
			}
			layers = append(layers, layer(t, all...))
		}
		if got := applied(t, layers...); !maps.Equal(got, model) {
			t.Fatalf("seed %d: got %v\nwant %v", seed, got, model)
		}
	}
}

// randomLayer returns files, each directory before what is in it, and markers.
// A layer never hides a directory that it only adds to, which has no defined
// meaning.
func randomLayer(rnd *rand.Rand) (files, markers []tar.Header) {
	have := map[string]bool{}
	parent := func() string {
		p := ""
		for range rnd.IntN(3) {
			p = path.Join(p, string(rune('a'+rnd.IntN(3))))
			if !have[p] {
				have[p] = true
				files = append(files, folder(p))
			}
		}
		return p
	}
	for i := range rnd.IntN(8) {
		p := path.Join(parent(), string(rune('f'+rnd.IntN(3))))
		files = append(files, reg(p, fmt.Sprint(rnd.Uint32(), "-", i)))
	}
	for range rnd.IntN(4) {
		base := []string{".wh..wh..opq", ".wh." + string(rune('a'+rnd.IntN(3))), ".wh." + string(rune('f'+rnd.IntN(3)))}[rnd.IntN(3)]
		markers = append(markers, reg(path.Join(parent(), base), ""))
	}
	return files, markers
}

func modelMarker(m map[string]string, name string) {
	dir, base := path.Split("/" + name)
	hidden := path.Join(dir, strings.TrimPrefix(base, ".wh."))
	for p := range m {
		switch {
		case base == ".wh..wh..opq" && strings.HasPrefix(p, dir),
			base != ".wh..wh..opq" && (p == hidden || strings.HasPrefix(p, hidden+"/")):
			delete(m, p)
		}
	}
}

func modelAdd(m map[string]string, p string, h tar.Header) {
	if h.Typeflag == tar.TypeDir {
		m[p] = "dir"
		return
	}
	m[p] = h.Linkname
}
