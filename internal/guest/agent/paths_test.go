package agent

import (
	"archive/zip"
	"bytes"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	guestv1 "agentbox/internal/gen/guest/v1"
)

func TestParent(t *testing.T) {
	for p, want := range map[string]string{
		"/a/b": "/a", "/a/b/": "/a", "/a": "/", "/": "/", "a": ".", "a/b": "a", "a/../b": "a/..", "//a": "/", "/a//b": "/a", "": "/",
	} {
		if got := parent(p); got != want {
			t.Errorf("the parent of %q is %q, want %q", p, got, want)
		}
	}
}

func TestFirstNames(t *testing.T) {
	var all []string
	for i := range 1000 {
		all = append(all, strings.Repeat("x", i%7)+string(rune('a'+i%26))+string(rune('A'+i/26)))
	}
	sorted := slices.Sorted(slices.Values(all))
	var got []string
	for after := ""; ; {
		f := NewFirstNames(after, 10)
		for part := range slices.Chunk(all, 33) {
			f.Add(part)
		}
		names, more := f.Sorted()
		got = append(got, names...)
		if !more {
			break
		}
		after = names[len(names)-1]
	}
	if !slices.Equal(got, sorted) {
		t.Errorf("%d names came as %d in pages", len(sorted), len(got))
	}
}

// FuzzPaths: no name of an archive leads outside, and a parent is above.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "/a", "a/./b//c/", "", ".", "a\x00b", "a/..", "\xff/.. /b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if elements, ok := clean(name); ok {
			for _, e := range elements {
				if e == "" || e == "." || e == ".." || strings.ContainsAny(e, "/\x00") {
					t.Errorf("%q has the element %q", name, e)
				}
			}
			if got := path.Join(append([]string{"/root"}, elements...)...); got != "/root" && !strings.HasPrefix(got, "/root/") {
				t.Errorf("%q leads to %q", name, got)
			}
		}
		p := parent(name)
		if p == "" || len(p) > len(name)+1 || strings.HasPrefix(name, "/") != strings.HasPrefix(p, "/") && name != "" && strings.Trim(name, "/") != "" {
			t.Errorf("the parent of %q is %q", name, p)
		}
		if checkPath(name) == nil && (name == "" || strings.Contains(name, "\x00")) {
			t.Errorf("%q is taken for a path", name)
		}
	})
}

// FuzzZip: whatever files are called and hold, an archive of them is one that
// others read.
func FuzzZip(f *testing.F) {
	f.Add("a b", []byte("content"), uint32(typeFile|0o644))
	f.Add("l\xff", []byte("target"), uint32(typeLink|0o777))
	f.Fuzz(func(t *testing.T, name string, content []byte, mode uint32) {
		elements, ok := clean(name)
		if !ok || len(elements) == 0 || len(name) > 1000 {
			return
		}
		name = strings.Join(elements, "/")
		i := &guestv1.FileInfo{Mode: mode}
		switch {
		case isLink(i):
			i.Target = content
		case !isFile(i) && !isDir(i):
			return
		}
		var b bytes.Buffer
		z := newZip(&b)
		w, err := z.entry(name, i, int64(len(content)))
		if err == nil && isFile(i) {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil && r == nil || len(r.File) != 1 || strings.TrimSuffix(r.File[0].Name, "/") != name {
			t.Fatalf("%q: %v", name, err)
		}
		if isDir(i) {
			return
		}
		body, err := r.File[0].Open()
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%q holds %q, %v", name, got, err)
		}
	})
}
