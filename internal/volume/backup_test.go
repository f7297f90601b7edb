//go:build linux

package volume_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
	"agentbox/internal/volume"
)

// canary is what must never be in an archive.
const canary = "the host's secret"

// hostileTree makes what a guest could leave in dir.
func hostileTree(t *testing.T, dir, secret string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Symlink("/", at("root")))
	must(t, os.Symlink(secret, at("secret")))
	must(t, os.Symlink(filepath.Dir(secret), at("dir")))
	must(t, os.Symlink("..", at("up")))
	must(t, os.Symlink("loop", at("loop")))
	must(t, unix.Mkfifo(at("fifo"), 0o666))
	sock, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("socket")})
	must(t, err)
	sock.SetUnlinkOnClose(false)
	must(t, sock.Close())
	if os.Geteuid() == 0 {
		must(t, unix.Mknod(at("disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
		must(t, unix.Mknod(at("zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // /dev/zero never ends
	}
	must(t, os.WriteFile(at("setuid"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.Chmod(at("setuid"), 0o755|os.ModeSetuid|os.ModeSetgid))
	must(t, os.WriteFile(at("first"), []byte("shared"), 0o640))
	must(t, os.Link(at("first"), at("second")))
	must(t, os.WriteFile(at("huge"), nil, 0o644))
	must(t, os.Truncate(at("huge"), 200<<20))
	for _, name := range []string{"new\nline", "\x1b[2J", "\xff\xfe", "..x", "-rf", " "} {
		must(t, os.WriteFile(at(name), []byte(name), 0o600))
	}
	must(t, os.Mkdir(at("closed"), 0o755))
	must(t, os.WriteFile(at("closed/f"), []byte("in"), 0o644))
	must(t, os.Chmod(at("closed"), 0))
	must(t, os.MkdirAll(at("many"), 0o755))
	for i := range 10_000 {
		must(t, os.WriteFile(at(fmt.Sprint("many/", i)), nil, 0o644))
	}
}

// deepTree nests n directories, more than one path can name.
func deepTree(t *testing.T, dir string, n int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range n {
		must(t, unix.Mkdirat(fd, "deeper", 0o755))
		next, err := unix.Openat(fd, "deeper", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// What a guest made comes out as what it is, is restored inside the volume only,
// and can be removed.
func TestHostileTree(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		secret := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(secret, []byte(canary), 0o644))
		v, _ := h.open(t)
		_, err := v.Create(t.Context(), "default", "data", 256<<20)
		must(t, err)
		tree := acquire(t, v, "default", "data", "s")
		hostileTree(t, tree, secret)
		deepTree(t, tree, 5000)

		var archive bytes.Buffer // while the sandbox uses the volume
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		skipped, err := v.Backup(ctx, "default", "data", &archive, transfer.Bounds{Bytes: 100 << 20})
		must(t, err)
		checkSkipped(t, skipped)
		if bytes.Contains(archive.Bytes(), []byte(canary)) {
			t.Error("the host's secret is in the archive")
		}
		release(t, v, "default", "data", "s")

		_, err = v.Create(t.Context(), "default", "copy", 256<<20)
		must(t, err)
		if skipped, err := v.Restore(ctx, "default", "copy", &archive, transfer.Bounds{}); err != nil || len(skipped) != 0 {
			t.Errorf("restore: %q, %v", skipped, err)
		}
		checkRestored(t, acquire(t, v, "default", "copy", "s"), secret)
		release(t, v, "default", "copy", "s")
		for _, name := range []string{"data", "copy"} {
			must(t, v.Remove(t.Context(), "default", name))
		}
		if b, err := os.ReadFile(secret); err != nil || string(b) != canary {
			t.Errorf("the host's secret is %q, %v", b, err)
		}
		if names, _ := os.ReadDir(h.Dir); len(names) != 0 {
			t.Errorf("left: %v", names)
		}
	})
}

func checkSkipped(t *testing.T, skipped []string) {
	t.Helper()
	all := strings.Join(skipped, "\n")
	want := []string{`"fifo"`, `"socket"`, `"huge"`, "deeper"}
	if os.Geteuid() == 0 {
		want = append(want, `"disk"`, `"zero"`)
	}
	for _, w := range want {
		if !strings.Contains(all, w) {
			t.Errorf("%s is not among what was left out", w)
		}
	}
	if len(skipped) != len(want) {
		t.Errorf("left out: %s", all)
	}
}

func checkRestored(t *testing.T, tree, secret string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(tree, name) }
	if to, err := os.Readlink(at("secret")); err != nil || to != secret {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if i, err := os.Stat(at("setuid")); err != nil || i.Mode() != 0o755 {
		t.Errorf("the program: %v, %v", i, err)
	}
	a, err := os.Stat(at("first"))
	must(t, err)
	if b, err := os.Stat(at("second")); err != nil || !os.SameFile(a, b) || a.Mode() != 0o640 {
		t.Errorf("two names of one file: %v, %v, %v", a, b, err)
	}
	for _, name := range []string{"new\nline", "\x1b[2J", "\xff\xfe", "..x"} {
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != name {
			t.Errorf("%q: %q, %v", name, b, err)
		}
	}
	if names, err := os.ReadDir(at("many")); err != nil || len(names) != 10_000 {
		t.Errorf("%d of 10,000 names, %v", len(names), err)
	}
	if b, err := os.ReadFile(at("closed/f")); err != nil || string(b) != "in" {
		t.Errorf("in a closed directory: %q, %v", b, err)
	}
}

// Owners are the guest's in the archive and the host's on the disk.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	create(t, v, "default", "a")
	create(t, v, "default", "b")
	tree := acquire(t, v, "default", "a", "s")
	for name, uid := range map[string]int{"user": base + 1000, "root": base, "host": 0, "last": base + 65_535, "beyond": base + 65_536} {
		must(t, os.WriteFile(filepath.Join(tree, name), nil, 0o600))
		must(t, os.Chown(filepath.Join(tree, name), uid, uid))
	}
	release(t, v, "default", "a", "s")
	var archive bytes.Buffer
	_, err := v.Backup(t.Context(), "default", "a", &archive, transfer.Bounds{})
	must(t, err)
	_, err = v.Restore(t.Context(), "default", "b", &archive, transfer.Bounds{})
	must(t, err)
	tree = acquire(t, v, "default", "b", "s")
	for name, want := range map[string]uint32{"user": base + 1000, "root": base, "host": base, "last": base + 65_535, "beyond": base} {
		i, err := os.Lstat(filepath.Join(tree, name))
		must(t, err)
		if got := i.Sys().(*syscall.Stat_t); got.Uid != want || got.Gid != want {
			t.Errorf("%s is of %d:%d, want %d", name, got.Uid, got.Gid, want)
		}
	}
}

// Archives that lie, in the forms that have hurt others.
func TestRestoreHostile(t *testing.T) {
	reg := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o4755, Size: 3}
	}
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	out := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		headers []*tar.Header
		skips   int
	}{
		"dot dot":           {[]*tar.Header{reg("../pwn")}, 1},
		"deep dot dot":      {[]*tar.Header{reg("a/../../pwn")}, 1},
		"absolute":          {[]*tar.Header{reg(out)}, 1},
		"link then file":    {[]*tar.Header{link("l", ".."), reg("l/pwn")}, 1},
		"link to a file":    {[]*tar.Header{link("l", out), reg("l")}, 0},
		"hard link out":     {[]*tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../records"}}, 1},
		"hard link by link": {[]*tar.Header{link("l", "/etc"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/passwd"}}, 1},
		"hard link to link": {[]*tar.Header{link("l", "/etc/passwd"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "l"}}, 1},
		"directory on link": {[]*tar.Header{link("l", "/tmp"), {Name: "l", Typeflag: tar.TypeDir, Mode: 0o777}}, 1},
		"device":            {[]*tar.Header{{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}}, 1},
		"fifo":              {[]*tar.Header{{Name: "f", Typeflag: tar.TypeFifo}}, 1},
		"file as directory": {[]*tar.Header{reg("x"), reg("x/pwn")}, 1},
		"directory as file": {[]*tar.Header{{Name: "x/y", Typeflag: tar.TypeDir, Mode: 0o755}, reg("x")}, 1},
		"twice":             {[]*tar.Header{reg("x"), reg("x")}, 0},
		"too deep":          {[]*tar.Header{reg(strings.Repeat("a/", 1000) + "x")}, 1},
		"itself":            {[]*tar.Header{{Name: "./", Typeflag: tar.TypeDir, Mode: 0}, reg("x")}, 0},
		"no name":           {[]*tar.Header{reg("")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, v, "default", "data")
			id := h.records.only(t)
			skipped, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(tarOf(t, c.headers...)), transfer.Bounds{})
			if err != nil || len(skipped) != c.skips {
				t.Errorf("skipped %q, %v; want %d", skipped, err, c.skips)
			}
			must(t, filepath.Walk(filepath.Join(h.Dir, id, "data"), func(p string, i os.FileInfo, err error) error {
				if err == nil && i.Mode()&^(os.ModeDir|os.ModeSymlink|os.ModePerm) != 0 {
					t.Errorf("%s has mode %v", p, i.Mode())
				}
				return err
			}))
			if names, _ := os.ReadDir(filepath.Join(h.Dir, id)); len(names) != 1 {
				t.Errorf("beside the tree: %v", names)
			}
			must(t, v.Remove(t.Context(), "default", "data"))
		})
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("a file was written outside")
	}
}

func TestRestoreBounds(t *testing.T) {
	h := newHost(t, sandbox.VolumeImage)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	two := tarOf(t, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 3}, &tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: 3})
	for _, b := range []transfer.Bounds{{Bytes: 5}, {Entries: 1}} {
		if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two), b); !errors.Is(err, transfer.ErrBounds) {
			t.Errorf("%+v: %v", b, err)
		}
		if b.Entries > 0 {
			if _, err := v.Backup(t.Context(), "default", "data", io.Discard, transfer.Bounds{Entries: 1}); err != nil {
				t.Errorf("one entry where one may be: %v", err)
			}
		}
	}
	if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two[:514]), transfer.Bounds{}); err == nil {
		t.Error("a broken archive was taken as whole")
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 2 * volume.MinSize}))
	_, err := w.Write(bytes.Repeat([]byte("x"), int(2*volume.MinSize)))
	must(t, err)
	must(t, w.Close())
	if _, err := v.Restore(t.Context(), "default", "data", &b, transfer.Bounds{}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("more than the volume takes: %v", err)
	}
	acquire(t, v, "default", "data", "s")
	if _, err := v.Restore(t.Context(), "default", "data", bytes.NewReader(two), transfer.Bounds{}); !errdefs.IsConflict(err) {
		t.Errorf("into a volume in use: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Backup(ctx, "default", "data", io.Discard, transfer.Bounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	release(t, v, "default", "data", "s")
}

func tarOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte("abc"))
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func FuzzRestore(f *testing.F) {
	f.Add(tarOf(f, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3}))
	f.Add(tarOf(f, &tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, &tar.Header{Name: "l/x", Typeflag: tar.TypeReg, Size: 3}))
	f.Add(tarOf(f, &tar.Header{Name: "../a", Typeflag: tar.TypeLink, Linkname: "../b"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		v, _, err := volume.Open(t.Context(), volume.Options{Dir: filepath.Join(outer, "v"), Records: newRecords(), Kind: sandbox.VolumeDirectory}, nil)
		must(t, err)
		defer v.Close()
		vol, err := v.Create(t.Context(), "default", "data", 0)
		must(t, err)
		_, _ = v.Restore(t.Context(), "default", "data", bytes.NewReader(b), transfer.Bounds{Bytes: 1 << 20, Entries: 100})
		for dir, want := range map[string]int{outer: 1, filepath.Join(outer, "v"): 1, filepath.Join(outer, "v", vol.ID): 1} {
			if names, _ := os.ReadDir(dir); len(names) != want {
				t.Fatalf("in %s: %v", dir, names)
			}
		}
		must(t, v.Remove(t.Context(), "default", "data"))
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"acme", "../x", ".owners", "a/b", "-rf", "a\n", "x\x00"} {
		f.Add("a", s)
	}
	f.Fuzz(func(t *testing.T, owner, id string) {
		outer := t.TempDir()
		storage := filepath.Join(outer, "s")
		v, _, err := volume.Open(t.Context(), volume.Options{Dir: filepath.Join(outer, "v"), Storage: storage, Records: newRecords()}, nil)
		must(t, err)
		defer v.Close()
		s, err := v.AcquireTenant(t.Context(), owner, id, "s")
		if err != nil {
			if names, _ := os.ReadDir(storage); len(names) != 0 || !errdefs.IsInvalidArgument(err) {
				t.Fatalf("%v: %v", names, err)
			}
			return
		}
		want := filepath.Join(storage, id)
		if owner != sandbox.DefaultOwner {
			want = filepath.Join(storage, ".owners", owner, id)
		}
		if filepath.Dir(s.Workspace) != want || filepath.Base(id) != id {
			t.Fatalf("%q of %q is at %s", id, owner, s.Workspace)
		}
		if names, _ := os.ReadDir(outer); len(names) != 2 {
			t.Fatalf("outside: %v", names)
		}
	})
}
