package erofs_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"agentbox/internal/image/erofs"
	"agentbox/internal/image/erofs/erofstest"

	"github.com/containerd/errdefs"
)

// small keeps a fuzzer from filling the disk.
var small = erofs.Limits{MaxEntries: 2000, MaxBytes: 1 << 20, MaxText: 1 << 18, MaxDepth: 64}

// FuzzTarIntake feeds bytes as two layers. Whatever they are, the writer either
// refuses them with a class of error or makes an image that is right.
func FuzzTarIntake(f *testing.F) {
	f.Add(layer(f, reg("d/f", "1"), hard("h", "d/f"), soft("l", "d"), reg("l/g", "2")), layer(f, reg("d/.wh.f", ""), reg(".wh..wh..opq", "")))
	f.Add(layer(f, folder("d"), tar.Header{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 3}), layer(f, soft("d", "/"), reg("d/x", "")))
	f.Add(lie(layer(f, reg("f", "abc")), 1<<62), []byte("junk"))
	out := fuzzFile(f)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		fuzzBuild(t, out, func(w *erofs.Writer) error {
			if err := w.AddLayer(bytes.NewReader(a)); err != nil {
				return err
			}
			return w.AddLayer(bytes.NewReader(b))
		})
	})
}

// FuzzWriter runs the bytes as a program of calls.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x00a\x00\x01a/b\x00\x02l\x00/a\x00\x03l/c\x00a/b\x00\x04\x05a\x00\x06a\x00"))
	out := fuzzFile(f)
	f.Fuzz(func(t *testing.T, program []byte) {
		fuzzBuild(t, out, func(w *erofs.Writer) error { return runProgram(w, program) })
	})
}

// runProgram takes an operation's number and its strings, each ended by NUL.
func runProgram(w *erofs.Writer, b []byte) error {
	str := func() string {
		s, rest, _ := bytes.Cut(b, []byte{0})
		b = rest
		return string(s)
	}
	for n := 0; len(b) > 0 && n < 1000; n++ {
		op := b[0]
		b = b[1:]
		var err error
		switch op % 8 {
		case 0:
			err = w.Add(dir(str()))
		case 1:
			p := str()
			err = w.Add(file(p, p))
		case 2:
			err = w.Add(symlink(str(), str()))
		case 3:
			err = w.Add(erofs.Entry{Path: str(), Link: str()})
		case 4:
			w.NextLayer()
		case 5:
			err = w.Whiteout(str())
		case 6:
			err = w.Opaque(str())
		case 7:
			var v [4]byte
			copy(v[:], str())
			err = w.Add(erofs.Entry{Path: str(), Mode: binary.LittleEndian.Uint32(v[:]), Major: 7, Minor: 300})
		}
		if errdefs.IsResourceExhausted(err) {
			return err
		}
		// Other errors leave the tree as it was, so that more is tried.
	}
	return nil
}

// fuzzFile is the file that all runs of a fuzzing process write to.
func fuzzFile(f *testing.F) *os.File {
	out, err := os.CreateTemp(f.TempDir(), "")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { out.Close() })
	return out
}

// fuzzBuild makes an image and reads it back.
func fuzzBuild(t *testing.T, f *os.File, fill func(*erofs.Writer) error) {
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	w, err := erofs.New(f, small)
	if err != nil {
		t.Fatal(err)
	}
	err = fill(w)
	if err == nil {
		_, err = w.Close(built)
	}
	if err != nil {
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Fatal(fmt.Errorf("error without a class: %w", err))
		}
		return
	}
	img, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := erofstest.Read(img); err != nil {
		t.Fatal(err)
	}
}
