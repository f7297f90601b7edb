//go:build linux

package volume_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// A sandbox that outlived the daemon keeps its volume; the others are released.
func TestHoldsSurvive(t *testing.T) {
	eachKind(t, func(t *testing.T, h *host) {
		old, _ := h.open(t)
		create(t, old, "default", "held")
		create(t, old, "default", "idle")
		tree := acquire(t, old, "default", "held", "alive")
		must(t, os.WriteFile(filepath.Join(tree, "f"), []byte("x"), 0o644))
		acquire(t, old, "default", "idle", "dead")
		open, err := os.Open(filepath.Join(tree, "f")) // as a sandbox has it
		must(t, err)
		defer open.Close()

		hold := volume.Hold{Owner: "default", Volume: "held", Holder: "alive"}
		gone := volume.Hold{Owner: "default", Volume: "gone", Holder: "alive"}
		tenant := volume.Hold{Owner: "a", Tenant: "acme", Holder: "alive"}
		v, rep := h.open(t, hold, gone, tenant)
		if len(rep.Lost) != 1 || rep.Lost[0].Hold != gone || !errdefs.IsNotFound(rep.Lost[0].Err) {
			t.Errorf("lost: %+v", rep.Lost)
		}
		wantMounts := 0
		if h.Kind == sandbox.VolumeImage {
			wantMounts = 1
		}
		if n := h.mounts(t); n != wantMounts || len(rep.Unmounted) != wantMounts {
			t.Errorf("%d mounts, report %+v", n, rep)
		}
		if again := acquire(t, v, "default", "held", "alive"); again != tree {
			t.Errorf("the tree moved from %s to %s", tree, again)
		}
		if _, err := v.Acquire(t.Context(), "default", "held", "other", true); !errdefs.IsConflict(err) {
			t.Errorf("beside a writer that outlived the daemon: %v", err)
		}
		if err := v.RemoveTenant(t.Context(), "a", "acme"); !errdefs.IsConflict(err) {
			t.Errorf("storage that a sandbox uses: %v", err)
		}
		acquire(t, v, "default", "idle", "other")
		release(t, v, "default", "idle", "other")
		must(t, open.Close())
		release(t, v, "default", "held", "alive")
		if n := h.mounts(t); n != 0 {
			t.Errorf("%d mounts in the end", n)
		}
	})
}

// What is not ours stays, however it looks.
func TestDecoysStay(t *testing.T) {
	h := newHost(t, sandbox.VolumeImage)
	v, _ := h.open(t)
	create(t, v, "default", "data")
	acquire(t, v, "default", "data", "dead")
	id := h.records.only(t)

	orphan := strings.Repeat("0a", 16)
	files := []string{orphan + "/image", "notes/image", id + "/mnt/data/f", id + ".bak/mnt/f"}
	for _, f := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(h.Dir, f)), 0o755))
		must(t, os.WriteFile(filepath.Join(h.Dir, f), []byte("x"), 0o644))
	}
	var mounts []string
	for _, d := range []string{"notes/mnt", id + "/other", id + ".bak/mnt", "with space/mnt"} {
		d = filepath.Join(h.Dir, d)
		must(t, os.MkdirAll(d, 0o755))
		must(t, unix.Mount("none", d, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { _ = unix.Unmount(d, unix.MNT_DETACH) })
		mounts = append(mounts, d)
	}
	v, rep := h.open(t)
	if !slices.Equal(rep.Unknown, []string{orphan}) || !slices.Equal(rep.Unmounted, []string{id}) {
		t.Errorf("report: %+v", rep)
	}
	if n := h.mounts(t); n != len(mounts) {
		t.Errorf("of %d mounts of others %d are left", len(mounts), n)
	}
	for _, d := range mounts {
		must(t, unix.Unmount(d, 0))
	}
	acquire(t, v, "default", "data", "s")
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(h.Dir, f)); err != nil {
			t.Error(err)
		}
	}
	release(t, v, "default", "data", "s")
}

// A mount by somebody else in a volume stops its removal before anything of
// theirs is touched.
func TestRemoveStopsAtMounts(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	v, _ := h.open(t)
	create(t, v, "default", "data")
	tree := acquire(t, v, "default", "data", "s")
	release(t, v, "default", "data", "s")
	at := filepath.Join(tree, "a", "b")
	must(t, os.MkdirAll(at, 0o755))
	must(t, unix.Mount("none", at, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(at, "theirs"), nil, 0o644))
	if err := v.Remove(t.Context(), "default", "data"); err == nil {
		t.Error("removed a volume with a mount in it")
	}
	if _, err := os.Stat(filepath.Join(at, "theirs")); err != nil {
		t.Error(err)
	}
	must(t, unix.Unmount(at, 0))
	must(t, v.Remove(t.Context(), "default", "data"))
}

// What can't be removed keeps neither the daemon nor the other tenants away.
func TestLeftoversThatStay(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	h.open(t)
	for _, at := range []string{filepath.Join(h.Storage, ".removed", "x"), filepath.Join(h.Dir, ".probe-x", "other")} {
		must(t, os.MkdirAll(at, 0o755))
		must(t, unix.Mount("none", at, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	v, rep := h.open(t)
	if len(rep.Failed) != 2 {
		t.Errorf("report: %+v", rep)
	}
	if _, err := v.AcquireTenant(t.Context(), "default", "acme", "s"); err != nil {
		t.Error(err)
	}
}
