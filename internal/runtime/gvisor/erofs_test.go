package gvisor_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"agentbox/internal/image/erofs"

	gvisorerofs "gvisor.dev/gvisor/pkg/erofs"
)

// wantFile is what was put into an image under one name.
type wantFile struct {
	entry   erofs.Entry
	content []byte
	links   uint32
}

// gVisor's own reader must see every name of random trees as they were written:
// found by Lookup, mapped from whole blocks, padded with zeros.
func TestGvisorReadsImages(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			img, want := writeRandomTree(t, rnd)
			root, err := img.Inode(img.RootNid())
			if err != nil {
				t.Fatal(err)
			}
			if n := checkTree(t, img, root, "", want); n != len(want) {
				t.Errorf("found %d names, want %d", n, len(want))
			}
			if _, err := root.Lookup("no such name"); err == nil {
				t.Error("found a name that is not there")
			}
		})
	}
}

// writeRandomTree makes an image and says what is in it, directories included.
func writeRandomTree(t *testing.T, rnd *rand.Rand) (*gvisorerofs.Image, map[string]*wantFile) {
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w, err := erofs.New(f, erofs.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*wantFile{}
	dirs := []string{""}
	var files []string
	for range 1 + rnd.IntN(600) {
		p := path.Join(dirs[rnd.IntN(len(dirs))], randomName(rnd))
		if want[p] != nil {
			continue
		}
		e := randomEntry(rnd, p)
		v := &wantFile{entry: e, links: 1}
		switch {
		case e.Mode&erofs.TypeMask == erofs.TypeDir:
			dirs = append(dirs, p)
		case rnd.IntN(8) == 0 && len(files) > 0:
			old := files[rnd.IntN(len(files))]
			v, e = want[old], erofs.Entry{Path: p, Link: old}
			v.links++
		case e.Mode&erofs.TypeMask == erofs.TypeRegular:
			v.content = bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, int(e.Size))
			e.Data = bytes.NewReader(v.content)
			files = append(files, p)
		}
		want[p] = v
		if err := w.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	img, err := gvisorerofs.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(img.Close)
	return img, want
}

// randomName is of any bytes but the two that no name has.
func randomName(rnd *rand.Rand) string {
	n := 1 + rnd.IntN(12)
	if rnd.IntN(10) == 0 {
		n = 1 + rnd.IntN(255)
	}
	b := make([]byte, n)
	for i := range b {
		for b[i] == 0 || b[i] == '/' {
			b[i] = byte(rnd.Uint32())
		}
	}
	if s := string(b); s != "." && s != ".." {
		return s
	}
	return "dot"
}

func randomEntry(rnd *rand.Rand, p string) erofs.Entry {
	e := erofs.Entry{Path: p, UID: rnd.Uint32(), GID: rnd.Uint32(), Mtime: time.Unix(rnd.Int64N(1<<33)-1<<32, rnd.Int64N(1e9))}
	sizes := []int{0, 1, 63, 4031, 4032, 4033, 4095, 4096, 4097, 8191, 8192, 20_000, rnd.IntN(5000)}
	switch rnd.IntN(6) {
	case 0:
		e.Mode = erofs.TypeDir
	case 1:
		e.Mode = erofs.TypeSymlink
		e.Target = string(bytes.Repeat([]byte("t"), 1+rnd.IntN(4095)))
	case 2:
		e.Mode = erofs.TypeFIFO
	default:
		e.Mode = erofs.TypeRegular
		e.Size = int64(sizes[rnd.IntN(len(sizes))])
	}
	e.Mode |= rnd.Uint32() & 0o7777
	return e
}

// checkTree compares all below dir and returns how many names there are.
func checkTree(t *testing.T, img *gvisorerofs.Image, dir gvisorerofs.Inode, name string, want map[string]*wantFile) int {
	found := 0
	err := dir.IterDirents(func(base string, _ uint8, nid uint64) error {
		if got, err := dir.Lookup(base); err != nil || got != nid {
			return fmt.Errorf("lookup of %q: %d, %w", base, got, err)
		}
		if base == "." || base == ".." {
			return nil
		}
		found++
		p := path.Join(name, base)
		i, err := img.Inode(nid)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		if want[p] == nil {
			return fmt.Errorf("%q should not be there", p)
		}
		if i.IsDir() {
			found += checkTree(t, img, i, p, want)
		}
		if err := checkInode(img, i, want[p]); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

func checkInode(img *gvisorerofs.Image, i gvisorerofs.Inode, want *wantFile) error {
	e := want.entry
	if uint32(i.Mode()) != e.Mode || i.UID() != e.UID || i.GID() != e.GID || int64(i.Mtime()) != e.Mtime.Unix() || int(i.MtimeNsec()) != e.Mtime.Nanosecond() {
		return fmt.Errorf("mode %o, owner %d:%d, time %d.%d, want %+v", i.Mode(), i.UID(), i.GID(), i.Mtime(), i.MtimeNsec(), e)
	}
	switch {
	case i.IsDir():
		return nil
	case i.Nlink() != want.links:
		return fmt.Errorf("%d links, want %d", i.Nlink(), want.links)
	case i.IsSymlink():
		if target, err := i.Readlink(); err != nil || target != e.Target {
			return fmt.Errorf("target of %d bytes, want %d: %w", len(target), len(e.Target), err)
		}
	case i.IsRegular():
		off, err := i.DataOffset()
		if err != nil || i.Size() != uint64(len(want.content)) {
			return fmt.Errorf("%d bytes, want %d: %w", i.Size(), len(want.content), err)
		}
		blocks, err := img.BytesAt(off, (i.Size()+4095)&^4095) // what a mapping shows
		if err != nil || !bytes.Equal(blocks[:i.Size()], want.content) || len(bytes.Trim(blocks[i.Size():], "\x00")) != 0 {
			return fmt.Errorf("content or tail differs: %w", err)
		}
	}
	return nil
}
