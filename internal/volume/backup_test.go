//go:build linux

package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// canary is what must never be in an archive.
const canary = "the host's secret"

// hostileTree makes what a guest could leave in dir, and many files.
func hostileTree(t *testing.T, dir, secret string, many int) {
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
	for i := range many {
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
		_, err := v.Create(t.Context(), "default", "data", size(v, 256<<20))
		must(t, err)
		tree := acquire(t, v, "default", "data", "s")
		many := 10_000
		if h.Kind == sandbox.VolumeDirectory {
			many = 1000 // the disk under it may be slow
		}
		hostileTree(t, tree, secret, many)
		deepTree(t, tree, 1000)

		var archive bytes.Buffer // while the sandbox uses the volume
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		skipped, err := v.Backup(ctx, "default", "data", &archive, volume.Bounds{Bytes: 100 << 20})
		must(t, err)
		checkSkipped(t, skipped)
		if bytes.Contains(archive.Bytes(), []byte(canary)) {
			t.Error("the host's secret is in the archive")
		}
		release(t, v, "default", "data", "s")

		_, err = v.Create(t.Context(), "default", "copy", size(v, 256<<20))
		must(t, err)
		if skipped, err := v.Restore(ctx, "default", "copy", &archive, volume.Bounds{}); err != nil || len(skipped) != 0 {
			t.Errorf("restore: %q, %v", skipped, err)
		}
		checkRestored(t, acquire(t, v, "default", "copy", "s"), secret, many)
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
	} else {
		want = append(want, `"closed"`)
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

func checkRestored(t *testing.T, tree, secret string, many int) {
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
	if names, err := os.ReadDir(at("many")); err != nil || len(names) != many {
		t.Errorf("%d of %d names, %v", len(names), many, err)
	}
	if b, err := os.ReadFile(at("closed/f")); os.Geteuid() == 0 && (err != nil || string(b) != "in") {
		t.Errorf("in a closed directory: %q, %v", b, err)
	}
}

// A guest that swaps its files for links and FIFOs while they are read gets
// nothing of the host's, and holds nobody up.
func TestBackupOfMovingTree(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(canary), 0o644))
	v, _ := h.open(t)
	create(t, v, "default", "data")
	tree := acquire(t, v, "default", "data", "s")
	stop := swapping(tree, secret)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10_000 {
		var archive bytes.Buffer
		if _, err := v.Backup(ctx, "default", "data", &archive, volume.Bounds{}); err != nil {
			t.Error(err)
			break
		}
		if bytes.Contains(archive.Bytes(), []byte(canary)) {
			t.Error("the host's secret is in the archive")
			break
		}
	}
}

// swapping puts ever other things at one place of a tree, until stop is called.
func swapping(tree, secret string) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	x, tmp := filepath.Join(tree, "x"), filepath.Join(tree, "tmp")
	file := func() { _ = os.WriteFile(tmp, []byte("harmless"), 0o644) }
	put := []func(){ // each right after a file
		file, func() { _ = os.Symlink(secret, tmp) },
		file, func() { _ = unix.Mkfifo(tmp, 0o666) },
		file, func() { _ = os.Symlink(filepath.Dir(secret), tmp) },
	}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
				put[i%len(put)]()
				_ = os.Rename(tmp, x)
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}

// opening opens a file with its first write and so keeps its file system busy.
type opening struct {
	path string
	file *os.File
}

func (o *opening) Write(b []byte) (int, error) {
	if o.file == nil {
		f, err := os.Open(o.path)
		if err != nil {
			return 0, err
		}
		o.file = f
	}
	return len(b), nil
}

// A backup that can't unmount says so, and the volume is held by nobody.
func TestBackupCannotUnmount(t *testing.T) {
	h := newHost(t, sandbox.VolumeImage)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	tree := acquire(t, v, "default", "data", "s")
	must(t, os.WriteFile(filepath.Join(tree, "f"), nil, 0o644))
	release(t, v, "default", "data", "s")
	w := &opening{path: filepath.Join(tree, "f")}
	if _, err := v.Backup(t.Context(), "default", "data", w, volume.Bounds{}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("with an open file: %v", err)
	}
	acquire(t, v, "default", "data", "next") // it is used as it is
	must(t, w.file.Close())
	release(t, v, "default", "data", "next")
	must(t, v.Remove(t.Context(), "default", "data"))
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
	_, err := v.Backup(t.Context(), "default", "a", &archive, volume.Bounds{})
	must(t, err)
	_, err = v.Restore(t.Context(), "default", "b", &archive, volume.Bounds{})
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

// stuck tells that something is written to it, and takes nothing until the end.
type stuck struct {
	begun chan<- struct{}
	end   <-chan struct{}
}

func (s stuck) Write([]byte) (int, error) {
	s.begun <- struct{}{}
	<-s.end
	return 0, io.ErrClosedPipe
}

// One owner's slow archives leave places for others.
func TestTEN10_ArchivesPerOwner(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	create(t, v, "a", "data")
	create(t, v, "b", "data")
	begun, end := make(chan struct{}, 20), make(chan struct{})
	var slow sync.WaitGroup
	defer slow.Wait()
	defer close(end)
	for range cap(begun) {
		slow.Go(func() {
			if _, err := v.Backup(t.Context(), "a", "data", stuck{begun, end}, volume.Bounds{}); !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
		})
	}
	for range 2 {
		<-begun
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 100 { // the slow ones have time to take all that they get
		if _, err := v.Backup(soon, "b", "data", io.Discard, volume.Bounds{}); err != nil {
			t.Fatalf("another owner's: %v", err)
		}
	}
	if n := len(begun); n > 0 {
		t.Errorf("%d more of one owner are written at once", n)
	}
}
