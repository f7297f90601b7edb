package erofs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/image/erofs"
	"agentbox/internal/image/erofs/erofstest"

	"github.com/containerd/errdefs"
)

var built = time.Unix(1_700_000_000, 5)

// build writes an image with fill and returns its bytes.
func build(t testing.TB, limits erofs.Limits, fill func(w *erofs.Writer) error) ([]byte, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := erofs.New(f, limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(w); err != nil {
		return nil, err
	}
	stats, err := w.Close(built)
	if err != nil {
		return nil, err
	}
	img, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(img)) != stats.Bytes {
		t.Errorf("Stats.Bytes = %d, the file has %d", stats.Bytes, len(img))
	}
	if err := erofs.Check(bytes.NewReader(img), int64(len(img))); err != nil {
		t.Errorf("Check: %v", err)
	}
	return img, nil
}

// mustRead builds an image and reads it back.
func mustRead(t testing.TB, fill func(w *erofs.Writer) error) map[string]erofstest.Node {
	t.Helper()
	img, err := build(t, erofs.Limits{}, fill)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := erofstest.Read(img)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// addAll returns a fill function that adds entries in order.
func addAll(entries ...erofs.Entry) func(w *erofs.Writer) error {
	return func(w *erofs.Writer) error {
		for _, e := range entries {
			if e.Size == 0 && e.Data != nil {
				e.Size = int64(e.Data.(*strings.Reader).Len())
			}
			if err := w.Add(e); err != nil {
				return err
			}
		}
		return nil
	}
}

func file(path, content string) erofs.Entry {
	return erofs.Entry{Path: path, Mode: erofs.TypeRegular | 0o644, Size: int64(len(content)), Data: strings.NewReader(content)}
}

func dir(path string) erofs.Entry { return erofs.Entry{Path: path, Mode: erofs.TypeDir | 0o755} }

func symlink(path, target string) erofs.Entry {
	return erofs.Entry{Path: path, Mode: erofs.TypeSymlink | 0o777, Target: target}
}

func TestEveryKindOfEntry(t *testing.T) {
	old := time.Date(1960, 1, 2, 3, 4, 5, 678, time.UTC)
	big := strings.Repeat("0123456789abcdef", 4096)
	long := strings.Repeat("t", 4095)
	nodes := mustRead(t, addAll(
		erofs.Entry{Path: "/", Mode: erofs.TypeDir | 0o711, UID: 3, GID: 4, Mtime: old},
		erofs.Entry{Path: "a/f", Mode: erofs.TypeRegular | 0o4751, UID: 70000, GID: 4_000_000_000, Mtime: old, Size: 3, Data: strings.NewReader("abc")},
		file("a/big", big), file("a/empty", ""), file("a/block", big[:4096]), file("a/more", big[:4097]),
		erofs.Entry{Path: "b/hard", Link: "a/f"},
		symlink("b/link", "../a/f"), symlink("b/long", long), symlink("b/plain", long[:4033]),
		erofs.Entry{Path: "dev/c", Mode: erofs.TypeChar | 0o600, Major: 259, Minor: 70000},
		erofs.Entry{Path: "dev/b", Mode: erofs.TypeBlock | 0o600, Major: 8, Minor: 1},
		erofs.Entry{Path: "dev/p", Mode: erofs.TypeFIFO | 0o600},
		erofs.Entry{Path: "dev/s", Mode: erofs.TypeSocket | 0o600},
	))
	content := map[string]string{"/a/f": "abc", "/a/big": big, "/a/empty": "", "/a/block": big[:4096], "/a/more": big[:4097], "/b/hard": "abc", "/b/link": "../a/f", "/b/long": long, "/b/plain": long[:4033]}
	for p, want := range content {
		if n, ok := nodes[p]; !ok || string(n.Data) != want {
			t.Errorf("%s: %d bytes, want %d", p, len(n.Data), len(want))
		}
	}
	f := nodes["/a/f"]
	if f.Mode != 0o104751 || f.UID != 70000 || f.GID != 4_000_000_000 || f.Mtime != old.Unix() || f.MtimeNs != 678 || f.Nlink != 2 || nodes["/b/hard"].NID != f.NID {
		t.Errorf("/a/f is %+v", f)
	}
	if r := nodes["/"]; r.Mode != 0o040711 || r.UID != 3 || r.GID != 4 || r.Mtime != old.Unix() {
		t.Errorf("/ is %+v", r)
	}
	if a := nodes["/a"]; a.Mode != 0o040755 || a.Mtime != old.Unix() {
		t.Errorf("the missing parent is %+v", a)
	}
	// 70000 = 0x11170: the low byte, then the major number, then the rest.
	if c := nodes["/dev/c"]; c.Mode != 0o020600 || c.Addr != 0x70|259<<8|0x11100<<12 {
		t.Errorf("device is %+v", c)
	}
	if len(nodes) != 17 {
		t.Errorf("%d names, want 17", len(nodes))
	}
}

// Names that sort before the dot, and bytes that are no UTF-8.
func TestOddNames(t *testing.T) {
	var entries []erofs.Entry
	want := map[string]bool{}
	for b := 1; b < 256; b++ {
		if name := string([]byte{byte(b)}); name != "/" && name != "." {
			entries = append(entries, file("d/"+name, name))
			want["/d/"+name] = true
		}
	}
	for _, name := range []string{"!x", "...", "..a", ".wh", strings.Repeat("\xff", 255), "new\nline"} {
		entries = append(entries, file("d/"+name, name))
		want["/d/"+name] = true
	}
	nodes := mustRead(t, addAll(entries...))
	for p := range want {
		if string(nodes[p].Data) != p[3:] {
			t.Errorf("%q is missing", p)
		}
	}
	if len(nodes) != len(want)+2 {
		t.Errorf("%d names, want %d", len(nodes), len(want)+2)
	}
}

// A directory that takes many blocks, a file with more links than 16 bits count.
func TestManyNames(t *testing.T) {
	const links = 70_001
	nodes := mustRead(t, func(w *erofs.Writer) error {
		if err := w.Add(file("first", "x")); err != nil {
			return err
		}
		for i := range links - 1 {
			if err := w.Add(erofs.Entry{Path: fmt.Sprintf("many/link-%d", i), Link: "first"}); err != nil {
				return err
			}
		}
		return nil
	})
	if n := nodes["/many/link-69999"]; n.Nlink != links || n.NID != nodes["/first"].NID {
		t.Errorf("link is %+v", n)
	}
}

// Directories whose size lies around what fits beside the inode.
func TestDirectorySizes(t *testing.T) {
	for names := 100; names < 140; names++ {
		for pad := range 3 {
			nodes := mustRead(t, func(w *erofs.Writer) error {
				for i := range names {
					if err := w.Add(file(fmt.Sprintf("d/%0*d", 18+pad*5, i), "")); err != nil {
						return err
					}
				}
				return nil
			})
			if len(nodes) != names+2 {
				t.Fatalf("%d names, want %d", len(nodes), names+2)
			}
		}
	}
}

func TestReplace(t *testing.T) {
	nodes := mustRead(t, addAll(
		file("f", "old"), file("f", "new"),
		file("d/x", "kept"), erofs.Entry{Path: "d", Mode: erofs.TypeDir | 0o700},
		file("gone/x", "1"), file("gone", "file"),
		symlink("l", "/d"), file("l/through", "2"),
		symlink("l2", "d"), dir("l2"),
		// The name that is replaced holds the other name of the new one.
		file("h/x", "inside"), erofs.Entry{Path: "h", Link: "h/x"},
		file("self", "self"), erofs.Entry{Path: "self", Link: "self"},
		erofs.Entry{Path: "two", Link: "f"}, file("f", "newest"),
	))
	for p, want := range map[string]string{"/f": "newest", "/two": "new", "/d/x": "kept", "/gone": "file", "/d/through": "2", "/h": "inside", "/self": "self"} {
		if got := string(nodes[p].Data); got != want {
			t.Errorf("%s = %q, want %q", p, got, want)
		}
	}
	if n := nodes["/d"]; n.Mode != 0o040700 {
		t.Errorf("/d is %+v", n)
	}
	if n := nodes["/l2"]; n.Mode != 0o040755 {
		t.Errorf("/l2 is %+v", n)
	}
	if _, ok := nodes["/gone/x"]; ok {
		t.Error("/gone/x is still there")
	}
}

// Whatever a name looks like, it lands inside.
func TestPathsStayInside(t *testing.T) {
	nodes := mustRead(t, addAll(
		file("../../up", "1"), file("/abs", "2"), file("a/../../b", "3"), file("./c//d/", "4"),
		symlink("esc", "../../.."), file("esc/e", "5"),
		symlink("abs-link", "/x/../../y"), file("abs-link/f", "6"),
	))
	for p, want := range map[string]string{"/up": "1", "/abs": "2", "/b": "3", "/c/d": "4", "/e": "5", "/y/f": "6"} {
		if got := string(nodes[p].Data); got != want {
			t.Errorf("%s = %q, want %q", p, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("d/", 40)
	for name, c := range map[string]struct {
		limits  erofs.Limits
		entries []erofs.Entry
		is      func(error) bool
		says    string
	}{
		"name too long":         {entries: []erofs.Entry{file(strings.Repeat("n", 256), "")}, is: errdefs.IsInvalidArgument, says: "255"},
		"name with NUL":         {entries: []erofs.Entry{file("a\x00b", "")}, is: errdefs.IsInvalidArgument, says: `"a\x00b"`},
		"parent with NUL":       {entries: []erofs.Entry{file("a\x00b/c", "")}, is: errdefs.IsInvalidArgument},
		"file over the root":    {entries: []erofs.Entry{file("/", "x")}, is: errdefs.IsInvalidArgument, says: "root"},
		"link over the root":    {entries: []erofs.Entry{file("f", ""), {Path: ".", Link: "f"}}, is: errdefs.IsInvalidArgument},
		"parent is a file":      {entries: []erofs.Entry{file("f", ""), file("f/g", "")}, is: errdefs.IsInvalidArgument, says: "parent"},
		"loop of links":         {entries: []erofs.Entry{symlink("a", "b"), symlink("b", "a"), file("a/x", "")}, is: errdefs.IsInvalidArgument, says: "symbolic links"},
		"empty target":          {entries: []erofs.Entry{symlink("a", "")}, is: errdefs.IsInvalidArgument},
		"long target":           {entries: []erofs.Entry{symlink("a", strings.Repeat("x", 4096))}, is: errdefs.IsInvalidArgument},
		"hard link to nothing":  {entries: []erofs.Entry{{Path: "a", Link: "b"}}, is: errdefs.IsInvalidArgument, says: `"b"`},
		"hard link to nowhere":  {entries: []erofs.Entry{{Path: "a", Link: "x/b"}}, is: errdefs.IsInvalidArgument, says: `"a"`},
		"hard link to a folder": {entries: []erofs.Entry{dir("b"), {Path: "a", Link: "b"}}, is: errdefs.IsInvalidArgument},
		"unknown type":          {entries: []erofs.Entry{{Path: "a", Mode: 0o644}}, is: errdefs.IsInvalidArgument},
		"mode of more bits":     {entries: []erofs.Entry{{Path: "a", Mode: 1<<20 | erofs.TypeFIFO}}, is: errdefs.IsInvalidArgument},
		"negative size":         {entries: []erofs.Entry{{Path: "a", Mode: erofs.TypeRegular, Size: -1}}, is: errdefs.IsInvalidArgument},
		"short data":            {entries: []erofs.Entry{{Path: "a", Mode: erofs.TypeRegular, Size: 9, Data: strings.NewReader("short")}}, is: errdefs.IsInvalidArgument, says: `"a"`},
		"too many entries":      {limits: erofs.Limits{MaxEntries: 2}, entries: []erofs.Entry{file("a", ""), file("b", ""), file("c", "")}, is: errdefs.IsResourceExhausted, says: "more than 2 entries"},
		"too many parents":      {limits: erofs.Limits{MaxEntries: 2}, entries: []erofs.Entry{file("a/b/c", "")}, is: errdefs.IsResourceExhausted},
		"too big":               {limits: erofs.Limits{MaxBytes: 8192}, entries: []erofs.Entry{file("a", strings.Repeat("x", 4097))}, is: errdefs.IsResourceExhausted, says: "8192"},
		"a size that lies":      {limits: erofs.Limits{MaxBytes: 8192}, entries: []erofs.Entry{{Path: "a", Mode: erofs.TypeRegular, Size: 1 << 62, Data: strings.NewReader("x")}}, is: errdefs.IsResourceExhausted},
		"too much metadata":     {limits: erofs.Limits{MaxBytes: 8192}, entries: []erofs.Entry{symlink("a", strings.Repeat("x", 4000)), symlink("b", strings.Repeat("x", 4000))}, is: errdefs.IsResourceExhausted},
		"too much text":         {limits: erofs.Limits{MaxText: 5000}, entries: []erofs.Entry{symlink("a", strings.Repeat("x", 4000)), symlink("b", strings.Repeat("x", 4000))}, is: errdefs.IsResourceExhausted, says: "5000"},
		"too deep":              {limits: erofs.Limits{MaxDepth: 20}, entries: []erofs.Entry{dir(deep)}, is: errdefs.IsResourceExhausted, says: "20"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := build(t, c.limits, addAll(c.entries...))
			if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

// Links through links and opaque markers over one big directory must not cost
// more than their number allows.
func TestWorkIsBounded(t *testing.T) {
	tangle := func(w *erofs.Writer) error {
		zigzag := strings.Repeat("d/../", 800)
		if err := addAll(dir("d"), symlink("l0", zigzag))(w); err != nil {
			return err
		}
		for i := range 39 {
			if err := w.Add(symlink(fmt.Sprint("l", i+1), zigzag+fmt.Sprint("l", i))); err != nil {
				return err
			}
		}
		for i := range 100_000 {
			if err := w.Add(file(fmt.Sprint("l39/f", i), "")); err != nil {
				return err
			}
		}
		return nil
	}
	markers := func(w *erofs.Writer) error {
		w.NextLayer()
		for i := range 20_000 {
			if err := w.Add(file(fmt.Sprint("d/f", i), "")); err != nil {
				return err
			}
		}
		for range 100_000 {
			if err := w.Opaque("d"); err != nil {
				return err
			}
		}
		return nil
	}
	for name, fill := range map[string]func(*erofs.Writer) error{"links": tangle, "opaque markers": markers} {
		t.Run(name, func(t *testing.T) {
			if _, err := build(t, erofs.Limits{}, fill); !errdefs.IsResourceExhausted(err) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	fill := func(w *erofs.Writer) error {
		for i := range 500 {
			if err := addAll(file(fmt.Sprintf("d%d/f%d", i%17, i), strings.Repeat("x", i*31)), erofs.Entry{Path: fmt.Sprint("h", i), Link: fmt.Sprintf("d%d/f%d", i%17, i)})(w); err != nil {
				return err
			}
		}
		w.NextLayer()
		return w.Whiteout("d3")
	}
	a, err := build(t, erofs.Limits{}, fill)
	if err != nil {
		t.Fatal(err)
	}
	b, err := build(t, erofs.Limits{}, fill)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two images of the same input differ")
	}
}

func TestCheckFindsDamage(t *testing.T) {
	img, err := build(t, erofs.Limits{}, addAll(file("f", strings.Repeat("x", 10_000))))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(img)
	flipped[1024+36] ^= 1
	for name, b := range map[string][]byte{"empty": nil, "cut off": img[:len(img)-4096], "longer": append(bytes.Clone(img), 0), "changed": flipped, "zeros": make([]byte, len(img))} {
		if err := erofs.Check(bytes.NewReader(b), int64(len(b))); !errdefs.IsDataLoss(err) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
