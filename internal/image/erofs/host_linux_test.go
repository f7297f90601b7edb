package erofs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/image/erofs"
	"agentbox/internal/image/erofs/erofstest"

	"golang.org/x/sys/unix"
)

// oddTree fills an image with everything that readers are known to stumble on.
func oddTree(w *erofs.Writer) error {
	entries := []erofs.Entry{
		{Path: "/", Mode: erofs.TypeDir | 0o755, Mtime: built},
		{Path: "dev/c", Mode: erofs.TypeChar | 0o600, Major: 259, Minor: 70000, Mtime: built},
		{Path: "dev/p", Mode: erofs.TypeFIFO | 0o600, UID: 70000, GID: 3},
		symlink("links/long", strings.Repeat("t", 4095)), symlink("links/short", "x"),
		file("empty", ""),
		{Path: "suid", Mode: erofs.TypeRegular | 0o4755, UID: 70000, Mtime: built.AddDate(-60, 0, 0), Size: 1, Data: strings.NewReader("s")},
	}
	for _, size := range []int{1, 63, 4031, 4032, 4033, 4095, 4096, 4097, 8191, 8192, 8193, 100_000} {
		entries = append(entries, file(fmt.Sprint("sizes/", size), strings.Repeat("z", size)))
	}
	for i := range 3000 {
		entries = append(entries, file(fmt.Sprintf("many/%d-%s", i, strings.Repeat("n", i%200)), fmt.Sprint(i)))
	}
	for i := range 300 {
		entries = append(entries, erofs.Entry{Path: fmt.Sprint("hard/", i), Link: "sizes/4097"})
	}
	for b := 1; b < 256; b++ {
		if name := string([]byte{byte(b)}); name != "/" && name != "." {
			entries = append(entries, file("bytes/"+name, name))
		}
	}
	entries = append(entries, dir(strings.Repeat("d/", 200)))
	return addAll(entries...)(w)
}

func writeOddTree(t *testing.T) (path string, nodes map[string]erofstest.Node) {
	img, err := build(t, erofs.Limits{}, oddTree)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err = erofstest.Read(img); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "image.erofs")
	if err := os.WriteFile(path, img, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, nodes
}

func TestFsckFindsNothing(t *testing.T) {
	fsck, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Skip("fsck.erofs is not installed (package erofs-utils)")
	}
	path, _ := writeOddTree(t)
	if out, err := exec.Command(fsck, path).CombinedOutput(); err != nil || bytes.Contains(out, []byte("<E>")) {
		t.Errorf("fsck.erofs: %v\n%s", err, out)
	}
}

// The kernel of the host must see what was written, and be able to map it.
func TestHostKernelReadsIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	path, nodes := writeOddTree(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", path, dir).CombinedOutput(); err != nil {
		t.Skipf("this host can't mount an EROFS file: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	seen := 0
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		seen++
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
		n, ok := nodes[name]
		if !ok {
			return fmt.Errorf("%q should not be there", name)
		}
		if err := compareHost(p, n); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if seen != len(nodes) {
		t.Errorf("the kernel shows %d names, want %d", seen, len(nodes))
	}
}

// compareHost compares the file p with what the image should hold.
func compareHost(p string, n erofstest.Node) error {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err
	}
	if st.Mode != uint32(n.Mode) || st.Uid != n.UID || st.Gid != n.GID || uint32(st.Nlink) != n.Nlink ||
		st.Mtim.Sec != n.Mtime || st.Mtim.Nsec != int64(n.MtimeNs) || st.Ino == 0 {
		return fmt.Errorf("stat is %+v, want %+v", st, n)
	}
	switch n.Mode & erofs.TypeMask {
	case erofs.TypeRegular:
		return compareMapped(p, n.Data)
	case erofs.TypeSymlink:
		if target, err := os.Readlink(p); err != nil || target != string(n.Data) {
			return fmt.Errorf("target %q, %w", target, err)
		}
	case erofs.TypeChar:
		if st.Rdev != unix.Mkdev(259, 70000) {
			return fmt.Errorf("device %d", st.Rdev)
		}
	}
	return nil
}

// compareMapped compares the content through read and through mmap.
func compareMapped(p string, want []byte) error {
	got, err := os.ReadFile(p)
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("read %d bytes, want %d: %w", len(got), len(want), err)
	}
	if len(want) == 0 {
		return nil
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(m)
	if !bytes.Equal(m, want) {
		return errors.New("mapped content differs")
	}
	return nil
}
