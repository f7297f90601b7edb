package cgroup

import (
	"fmt"
	"testing"
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
