package soak

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"agentbox/internal/e2e"
	"agentbox/internal/e2e/oracle"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
	"agentbox/internal/wire"
)

// TestSandboxHoldsNoOther: a process that has made many sandboxes hands none of
// its connections to them on to the next one.
func TestSandboxHoldsNoOther(t *testing.T) {
	p := place(t)
	images, err := wire.Images(p.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := local.Open(t.Context(), p.DataDir, images, wire.Backend(e2e.SharedDir(t)), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	// More than enough to use up the low file numbers, which boot needs.
	const many = 60
	parallel(4, many, func(int) {
		if _, err := engine.Create(t.Context(), local.Request{Image: e2e.Image, Limits: sandbox.Limits{}.WithDefaults()}); err != nil {
			t.Error(err)
		}
	})
	all, err := oracle.Processes(p)
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]int{} // socket → processes of sandboxes that hold it
	fewest, most := 1<<30, 0
	for _, pr := range all {
		if pr.Cmdline == "" { // shares the files of its parent, or has none
			continue
		}
		dir := fmt.Sprintf("/proc/%d/fd", pr.Pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		fewest, most = min(fewest, len(entries)), max(most, len(entries))
		mine := map[string]bool{}
		for _, e := range entries {
			if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
				mine[to] = true
			}
		}
		for to := range mine {
			holders[to]++
		}
	}
	t.Logf("%d sandboxes, %d to %d open files each", many, fewest, most)
	for socket, n := range holders {
		if n > 1 {
			t.Errorf("%s is held by %d sandboxes", socket, n)
		}
	}
	if most > 2*fewest {
		t.Errorf("some hold %d files, some %d", fewest, most)
	}
}
