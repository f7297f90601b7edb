package cgroup

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// TestKillsAreCountedAnew: the file of kills that stays open tells what the kernel counts
// now, and is let go of with the group.
func TestKillsAreCountedAnew(t *testing.T) {
	k := newKernel(0, "/system.slice", "/system.slice")
	g, err := detect(k).Create("box", Limits{Memory: 1 << 20, Pids: 8})
	if err != nil {
		t.Fatal(err)
	}
	delete(k.dirs[g.Dirs()[0]].files, "memory.events")
	if n := g.OOMKills(); n != 0 || k.open != 0 {
		t.Errorf("a kernel without the file counts %d, and %d files are open", n, k.open)
	}
	for n := range int64(3) {
		k.dirs[g.Dirs()[0]].files["memory.events"] = fmt.Sprintf("oom 9\noom_kill %d\n", n)
		if got := g.OOMKills(); got != n || k.open != 1 {
			t.Errorf("%d kills are %d, with %d files open", n, got, k.open)
		}
	}
	delete(k.dirs[g.Dirs()[0]].files, "memory.events")
	if got := g.OOMKills(); got != 0 {
		t.Errorf("a group that the kernel has removed: %d kills", got)
	}
	for range 2 {
		if err := g.Remove(); err != nil || k.open != 0 {
			t.Errorf("removed: %v, %d files are open", err, k.open)
		}
	}
}

// TestClosedGroupKeepsNothing: a group that was closed or removed still counts, and
// keeps no file open for it.
func TestClosedGroupKeepsNothing(t *testing.T) {
	for name, end := range map[string]func(*Group) error{"closed": (*Group).Close, "removed": (*Group).Remove} {
		k := newKernel(0, "/system.slice", "/system.slice")
		g, err := detect(k).Create("box", Limits{Memory: 1 << 20, Pids: 8})
		if err != nil {
			t.Fatal(err)
		}
		dir := g.Dirs()[0]
		k.dirs[dir].files["memory.events"] = "oom_kill 2\n"
		if got := g.OOMKills(); got != 2 || k.open != 1 {
			t.Fatalf("%d kills, with %d files open", got, k.open)
		}
		if err := end(g); err != nil || k.open != 0 {
			t.Errorf("%s: %v, %d files are open", name, err, k.open)
		}
		want := int64(2)
		if k.dirs[dir] == nil {
			want = 0
		}
		if got := g.OOMKills(); got != want || k.open != 0 {
			t.Errorf("%s: %d kills, with %d files open", name, got, k.open)
		}
	}
}

// TestKeptFileWakesNobody: the runtime does not wait for events of a file that stays open,
// which sandboxes cause. A file that it waits for can have a deadline.
func TestKeptFileWakesNobody(t *testing.T) {
	const polled = "/proc/self/mounts" // tells of changes as control groups' files do, and is on every host
	f, err := osTree{}.Open(polled)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.(*os.File).SetReadDeadline(time.Time{}); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("a deadline for %s: %v, want %v", polled, err, os.ErrNoDeadline)
	}
}
