//go:build linux

package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

func TestMain(m *testing.M) {
	if killedChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// base is the host's number of the guests' root in these tests.
const base = 100_000

// host is a place for volumes that several daemons use in turn.
type host struct {
	volume.Options
	records *records
}

// newHost makes one that keeps new volumes in the given way.
func newHost(t *testing.T, kind sandbox.VolumeKind) *host {
	t.Helper()
	r := newRecords()
	dir := t.TempDir()
	h := &host{records: r, Options: volume.Options{
		Dir: filepath.Join(dir, "volumes"), Storage: filepath.Join(dir, "storage"), Records: r,
		UID: base, GID: base, IDs: 65_536, Kind: kind,
	}}
	t.Cleanup(func() { h.clear(t) })
	if kind == sandbox.VolumeImage {
		needImages(t, h)
	}
	return h
}

// needImages ends a test that needs loop devices where there are none.
func needImages(t *testing.T, h *host) {
	t.Helper()
	o := h.Options
	o.Kind, o.Records = "", newRecords()
	o.Dir = filepath.Join(t.TempDir(), "probe")
	v, _, err := volume.Open(t.Context(), o, nil)
	must(t, err)
	defer v.Close()
	if kind, why := v.Kind(); kind != sandbox.VolumeImage {
		t.Skipf("no images can be mounted here; volumes are of kind %q: %v", kind, why)
	}
}

// clear unmounts what a test left mounted, so that its directory can be removed.
func (h *host) clear(t *testing.T) {
	all, _ := filepath.Glob(filepath.Join(h.Dir, "*", "mnt"))
	for _, mnt := range all {
		for unix.Unmount(mnt, unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
	}
	h.noLoops(t)
}

// noLoops checks that no loop devices are left. Processes of others that began a
// mount namespace of their own meanwhile have our mounts for a moment.
func (h *host) noLoops(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := h.loops(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("loop devices were left: %v", left)
			return
		}
	}
}

// loops lists the files below the host's directory that loop devices have.
func (h *host) loops(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(t, err)
	var ours []string
	for _, f := range all {
		if b, _ := os.ReadFile(f); strings.HasPrefix(string(b), h.Dir+"/") {
			ours = append(ours, strings.TrimSpace(string(b)))
		}
	}
	return ours
}

func (h *host) mounts(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Count(string(b), " "+h.Dir+"/")
}

// open starts a daemon.
func (h *host) open(t *testing.T, holds ...volume.Hold) (*volume.Volumes, volume.Report) {
	t.Helper()
	v, rep, err := volume.Open(t.Context(), h.Options, holds)
	must(t, err)
	t.Cleanup(func() { _ = v.Close() })
	return v, rep
}

// eachKind runs a test with every kind of volume that needs no special disk.
func eachKind(t *testing.T, f func(t *testing.T, h *host)) {
	for _, k := range []sandbox.VolumeKind{sandbox.VolumeImage, sandbox.VolumeDirectory} {
		t.Run(string(k), func(t *testing.T) { f(t, newHost(t, k)) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, v *volume.Volumes, owner, name string) {
	t.Helper()
	_, err := v.Create(t.Context(), owner, name, size(v, volume.MinSize))
	must(t, err)
}

// size is what may be asked for of n bytes: nothing where volumes have no limit.
func size(v *volume.Volumes, n int64) int64 {
	if kind, _ := v.Kind(); kind == sandbox.VolumeDirectory {
		return 0
	}
	return n
}

func acquire(t *testing.T, v *volume.Volumes, owner, name, holder string) string {
	t.Helper()
	m, err := v.Acquire(t.Context(), owner, name, holder, false)
	must(t, err)
	return m.Path
}

func release(t *testing.T, v *volume.Volumes, owner, name, holder string) {
	t.Helper()
	must(t, v.Release(t.Context(), owner, name, holder))
}
