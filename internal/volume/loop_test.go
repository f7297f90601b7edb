//go:build linux

package volume

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
)

// noRecords are those of a host that has no volumes yet.
type noRecords struct{ Records }

func (noRecords) Volumes(context.Context, string) ([]sandbox.Volume, error) { return nil, nil }

// A loop device of ours that nobody uses is cleared; one of others is not, even
// if it has such a file.
func TestDetachUnused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has loop devices")
	}
	dir := t.TempDir()
	ours := attachFile(t, filepath.Join(dir, strings.Repeat("0a", idBytes), imageName), loopMark)
	deleted := attachFile(t, filepath.Join(dir, strings.Repeat("0c", idBytes), imageName), loopMark)
	must(t, os.Remove(deleted.file))
	decoys := []loop{
		attachFile(t, filepath.Join(dir, strings.Repeat("0b", idBytes), imageName), "somebody else"),
		attachFile(t, filepath.Join(dir, "notes", imageName), loopMark),
		attachFile(t, filepath.Join(t.TempDir(), strings.Repeat("0a", idBytes), imageName), loopMark),
	}
	v, _, err := Open(t.Context(), Options{Dir: dir, Records: noRecords{}, Kind: sandbox.VolumeDirectory}, nil)
	must(t, err)
	defer v.Close()
	all, err := loops()
	must(t, err)
	for _, l := range decoys {
		if !slices.Contains(all, l) {
			t.Errorf("%v was cleared", l)
		}
	}
	for _, l := range all {
		if strings.HasPrefix(l.file, ours.file) || strings.HasPrefix(l.file, deleted.file) {
			t.Errorf("%v was left", l)
		}
	}
}

// A file that has a device gets no second one: two file systems on it would
// destroy each other.
func TestAttachAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has loop devices")
	}
	l := attachFile(t, filepath.Join(t.TempDir(), imageName), "somebody else")
	dev, err := attach(l.file)
	must(t, err)
	defer dev.Close()
	if dev.Name() != l.dev {
		t.Errorf("%s has %s besides %s", l.file, dev.Name(), l.dev)
	}
}

// attachFile makes a file and gives it a loop device that stays.
func attachFile(t *testing.T, path, mark string) loop {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	dev, err := attach(path)
	if err != nil {
		t.Skipf("no loop device can be had here: %v", err)
	}
	defer dev.Close()
	var info unix.LoopInfo64 // no longer clears itself
	copy(info.File_name[:], mark)
	must(t, unix.IoctlLoopSetStatus64(int(dev.Fd()), &info))
	name := dev.Name()
	t.Cleanup(func() {
		if f, err := os.Open(name); err == nil {
			if file, _ := backingFile(name); strings.HasPrefix(file, path) {
				_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			}
			f.Close()
		}
	})
	return loop{dev: name, file: path}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The kernel's structures have these sizes on 64 bits.
func TestSizesOfKernelStructures(t *testing.T) {
	if a, l := unsafe.Sizeof(fileAttr{}), unsafe.Sizeof(limits{}); a != 28 || l != 72 {
		t.Errorf("struct fsxattr has %d bytes, struct if_dqblk %d", a, l)
	}
}

func TestParseMountInfo(t *testing.T) {
	got := parseMountInfo("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		`23 22 0:5 / /a\040b\134c\0 rw - tmpfs x rw` + "\n\nshort line\n")
	if want := []string{"/", `/a b\c\0`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzMountInfo(f *testing.F) {
	f.Add(`23 22 0:5 / /a\040b rw - tmpfs x rw`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, p := range parseMountInfo(s) {
			if p == "" || len(p) > len(s) {
				t.Errorf("%q", p)
			}
		}
	})
}
