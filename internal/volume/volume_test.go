//go:build linux

package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

// What is written stays from one use to the next, until the volume is removed.
func TestLife(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		v, _ := h.open(t)
		create(t, v, "default", "data")
		tree := acquire(t, v, "default", "data", "one")
		must(t, os.WriteFile(filepath.Join(tree, "f"), []byte("kept"), 0o644))
		release(t, v, "default", "data", "one")
		release(t, v, "default", "data", "one") // again is no error
		if n := h.mounts(t); n != 0 {
			t.Errorf("%d mounts of a volume that nobody uses", n)
		}
		tree = acquire(t, v, "default", "data", "two")
		if b, err := os.ReadFile(filepath.Join(tree, "f")); err != nil || string(b) != "kept" {
			t.Errorf("%q, %v", b, err)
		}
		if names, _ := os.ReadDir(tree); len(names) != 1 {
			t.Errorf("the sandbox sees %v", names)
		}
		if i, _ := os.Stat(tree); i.Mode().Perm() != 0o777 || os.Geteuid() == 0 && i.Sys().(*syscall.Stat_t).Uid != base {
			t.Errorf("the tree has mode %v and is of %d", i.Mode(), i.Sys().(*syscall.Stat_t).Uid)
		}
		if i, _ := os.Stat(h.Dir); i.Mode().Perm() != 0o710 || os.Geteuid() == 0 && i.Sys().(*syscall.Stat_t).Gid != base {
			t.Errorf("above the tree the mode is %v and the group %d", i.Mode(), i.Sys().(*syscall.Stat_t).Gid)
		}
		info, err := v.Inspect(t.Context(), "default", "data")
		must(t, err)
		if !slices.Equal(info.Holders, []string{"two"}) || info.Used <= 0 || h.Kind == sandbox.VolumeImage && info.Size != volume.MinSize {
			t.Errorf("inspect: %+v", info)
		}
		release(t, v, "default", "data", "two")
		must(t, v.Remove(t.Context(), "default", "data"))
		if names, _ := os.ReadDir(h.Dir); len(names) != 0 {
			t.Errorf("left: %v", names)
		}
		if _, err := v.Get(t.Context(), "default", "data"); !errdefs.IsNotFound(err) {
			t.Errorf("after it was removed: %v", err)
		}
		create(t, v, "default", "data") // the name is free
	})
}

// A request that is done again has what it made the first time.
func TestCreateAs(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		v, _ := h.open(t)
		id := strings.Repeat("a1", 16)
		first, err := v.CreateAs(t.Context(), id, "default", "data", size(v, volume.MinSize))
		must(t, err)
		if again, err := v.CreateAs(t.Context(), id, "default", "data", size(v, volume.MinSize)); err != nil || again.ID != id || !again.Created.Equal(first.Created) {
			t.Errorf("the same request again: %+v, %v", again, err)
		}
		if _, err := v.Create(t.Context(), "default", "data", size(v, volume.MinSize)); !errdefs.IsAlreadyExists(err) {
			t.Errorf("another request: %v", err)
		}
		if _, err := v.CreateAs(t.Context(), "../x", "default", "other", size(v, volume.MinSize)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("no id: %v", err)
		}
	})
}

// One writes or any number read; who is in the way is named.
func TestAcquireConflicts(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	try := func(holder string, readOnly bool, wantHolder string) {
		t.Helper()
		m, err := v.Acquire(t.Context(), "default", "data", holder, readOnly)
		var held *sandbox.VolumeHeldError
		switch {
		case wantHolder == "" && (err != nil || m.ReadOnly != readOnly):
			t.Errorf("%s: %+v, %v", holder, m, err)
		case wantHolder != "" && (!errors.As(err, &held) || held.Holder != wantHolder || !errdefs.IsConflict(err)):
			t.Errorf("%s: %v; want a conflict with %s", holder, err, wantHolder)
		}
	}
	try("w", false, "")
	try("w", false, "") // again
	try("w", true, "w") // not both
	try("w2", false, "w")
	try("r", true, "w")
	if err := v.Remove(t.Context(), "default", "data"); !errdefs.IsConflict(err) {
		t.Errorf("a volume in use was removed: %v", err)
	}
	release(t, v, "default", "data", "stranger")
	try("r", true, "w") // a stranger's release changes nothing
	release(t, v, "default", "data", "w")
	try("r1", true, "")
	try("r2", true, "")
	release(t, v, "default", "data", "r1")
	try("w", false, "r2")
	release(t, v, "default", "data", "r2")
	try("w", false, "")
	if m, err := v.Acquire(t.Context(), "default", "data", "w", false); err != nil || !slices.Equal(m.NotEnforced, []string{sandbox.LimitDisk}) {
		t.Errorf("a plain directory has no limit, and says %v, %v", m.NotEnforced, err)
	}
}

// Who asks for a size gets it or an error; who does not is told that there is
// none.
func TestUnlimitedIsSaid(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	if _, err := v.Create(t.Context(), "default", "data", volume.MinSize); !errdefs.IsNotImplemented(err) {
		t.Errorf("a size that can't be held: %v", err)
	}
	vol, err := v.Create(t.Context(), "default", "data", 0)
	if err != nil || !slices.Equal(vol.NotEnforced, []string{sandbox.LimitDisk}) {
		t.Errorf("%+v, %v", vol, err)
	}
}

// On a disk that is full nothing is begun, and nothing is left.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	h := newHost(t, sandbox.VolumeImage)
	must(t, os.Mkdir(h.Dir, 0o700))
	must(t, unix.Mount("none", h.Dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(h.Dir, 0)) })
	v, _ := h.open(t)
	t.Cleanup(func() { _ = v.Close() })
	if _, err := v.Create(t.Context(), "default", "data", 0); !errdefs.IsResourceExhausted(err) {
		t.Errorf("on a full disk: %v", err)
	}
	if names, _ := os.ReadDir(h.Dir); len(names) != 0 || len(h.records.all) != 0 {
		t.Errorf("left: %v and %d records", names, len(h.records.all))
	}
}

// The records of the service's store will do.
func TestWithStore(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	must(t, err)
	defer s.Close()
	h.Records = s
	v, _ := h.open(t)
	create(t, v, "default", "data")
	if _, err := v.Create(t.Context(), "default", "data", 0); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second one of that name: %v", err)
	}
	acquire(t, v, "default", "data", "s")
	release(t, v, "default", "data", "s")
	must(t, v.Remove(t.Context(), "default", "data"))
	if err := v.Remove(t.Context(), "default", "data"); !errdefs.IsNotFound(err) {
		t.Errorf("removed twice: %v", err)
	}
}

// An image takes no more than its size, and gives space back to the host.
func TestImageIsLimited(t *testing.T) {
	h := newHost(t, sandbox.VolumeImage)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	tree := acquire(t, v, "default", "data", "s")
	full := filepath.Join(tree, "full")
	var err error
	f, ferr := os.Create(full)
	must(t, ferr)
	for range 2 * volume.MinSize / (1 << 20) {
		if _, err = f.Write(make([]byte, 1<<20)); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("wrote twice the size of the volume: %v", err)
	}
	must(t, f.Close())
	var fs unix.Statfs_t
	must(t, unix.Statfs(tree, &fs))
	if fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mounted with flags %#x", fs.Flags)
	}
	before := used(t, v)
	must(t, os.Remove(full))
	release(t, v, "default", "data", "s")
	after := used(t, v)
	if after > before-4<<20 {
		t.Errorf("%d bytes of the disk before the file was removed, %d after", before, after)
	}
}

func used(t *testing.T, v *volume.Volumes) int64 {
	t.Helper()
	unix.Sync()
	i, err := v.Inspect(t.Context(), "default", "data")
	must(t, err)
	return i.Used
}

func TestTEN09_OwnersNeverMeet(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		v, _ := h.open(t)
		create(t, v, "a", "data")
		unknown := v.Remove(t.Context(), "b", "data")
		for _, f := range []func() error{
			func() error { _, err := v.Get(t.Context(), "b", "data"); return err },
			func() error { _, err := v.Acquire(t.Context(), "b", "data", "s", true); return err },
			func() error { _, err := v.Inspect(t.Context(), "b", "data"); return err },
			func() error { return v.Remove(t.Context(), "b", "data") },
		} {
			if err := f(); !errdefs.IsNotFound(err) || !errdefs.IsNotFound(unknown) {
				t.Errorf("another owner's volume: %v", err)
			}
		}
		create(t, v, "b", "data") // the same name
		ta, tb := acquire(t, v, "a", "data", "sa"), acquire(t, v, "b", "data", "sb")
		must(t, os.WriteFile(filepath.Join(ta, "f"), nil, 0o644))
		if names, _ := os.ReadDir(tb); len(names) != 0 || ta == tb {
			t.Errorf("b sees %v in %s", names, tb)
		}
		if all, _ := v.List(t.Context(), "a"); len(all) != 1 || all[0].Owner != "a" {
			t.Errorf("a has %v", all)
		}
		release(t, v, "b", "data", "sa") // of another owner
		if _, err := v.Acquire(t.Context(), "a", "data", "other", false); !errdefs.IsConflict(err) {
			t.Errorf("b's release freed a's volume: %v", err)
		}
		release(t, v, "a", "data", "sa")
		release(t, v, "b", "data", "sb")
	})
}

func TestTEN10_VolumesPerOwner(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	h.PerOwner = 3
	v, _ := h.open(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i := range 10 {
		wg.Go(func() {
			_, err := v.Create(t.Context(), "a", fmt.Sprint("v", i), 0)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errdefs.IsResourceExhausted(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 3 {
		t.Errorf("%d volumes, 3 may be", made)
	}
	create(t, v, "b", "v")
}

// Names are never paths, and a caller has no other way to say what to mount.
func TestFS14_TEN06_Names(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	for _, name := range []string{
		"", ".", "..", "../x", "/", "/etc", "/proc", "/var/run/docker.sock", h.Dir, "a/b", "a\\b", ".owners", ".removed", "-rf", "--help",
		"$(id)", "a\n", "a\x00", "é", "🦊", strings.Repeat("x", 129), strings.Repeat("x", 4096),
	} {
		_, err := v.Create(t.Context(), "default", name, 0)
		_, err2 := v.Acquire(t.Context(), "default", name, "s", false)
		_, err3 := v.AcquireTenant(t.Context(), "default", name, "s")
		err4 := v.RemoveTenant(t.Context(), "default", name)
		for _, err := range []error{err, err2, err3, err4} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%.20q: %v", name, err)
			}
		}
	}
	for _, owner := range []string{"", ".", "..", "a/b", "A"} {
		if _, err := v.Create(t.Context(), owner, "x", 0); !errdefs.IsInvalidArgument(err) {
			t.Errorf("owner %q: %v", owner, err)
		}
	}
	for _, size := range []int64{-1, 1, volume.MinSize - 1, volume.DefaultMaxSize + 1} {
		if _, err := v.Create(t.Context(), "default", "x", size); !errdefs.IsInvalidArgument(err) || !strings.HasSuffix(err.Error(), ": allowed is 16m to 64g") {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if names, _ := os.ReadDir(h.Dir); len(names) != 0 {
		t.Errorf("made %v", names)
	}
}

// Of many who make, use and remove one name at once, each ends well.
func TestTogether(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		v, _ := h.open(t)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				who := fmt.Sprint("s", i)
				for range 4 {
					_, err := v.Create(t.Context(), "default", "data", size(v, volume.MinSize))
					check(t, err, errdefs.IsAlreadyExists)
					m, err := v.Acquire(t.Context(), "default", "data", who, i%2 == 0)
					check(t, err, errdefs.IsNotFound, errdefs.IsConflict)
					if err == nil {
						if _, err := os.Stat(m.Path); err != nil {
							t.Error(err)
						}
						check(t, v.Release(t.Context(), "default", "data", who))
					}
					check(t, v.Remove(t.Context(), "default", "data"), errdefs.IsNotFound, errdefs.IsConflict)
				}
			})
		}
		wg.Wait()
		check(t, v.Remove(t.Context(), "default", "data"), errdefs.IsNotFound)
		names, _ := os.ReadDir(h.Dir)
		if n := h.mounts(t); n != 0 || len(names) != 0 {
			t.Errorf("%d mounts, left: %v", n, names)
		}
	})
}

func check(t *testing.T, err error, allowed ...func(error) bool) {
	t.Helper()
	if err != nil && !slices.ContainsFunc(allowed, func(is func(error) bool) bool { return is(err) }) {
		t.Error(err)
	}
}
