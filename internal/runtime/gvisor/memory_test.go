package gvisor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

// maxPrivate bounds what the process of an idle sandbox shares with no other
// one; it had 7 MiB when this was written. The room is for the garbage
// collector's whims, not for growth: whoever nears it should look for what the
// engine has come to link, or to allocate at its start.
const maxPrivate = 16 * sandbox.MiB

// Sandboxes are cheap while they wait: many fit on one machine.
func TestMemoryOfIdleSandbox(t *testing.T) {
	b := newBox(t)
	b.sh("true")
	private := rollup(t, b.info().Pid, "Private_Dirty")
	t.Logf("the process of an idle sandbox has %.1f MiB of its own", float64(private)/float64(sandbox.MiB))
	if private > maxPrivate {
		t.Errorf("%d bytes are more than %d", private, maxPrivate)
	}
}

// rollup is one number of what the kernel sums up of a process's mappings, in
// bytes.
func rollup(t *testing.T, pid int, name string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		v, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kib * sandbox.KiB
	}
	t.Fatalf("the kernel says nothing of %s", name)
	return 0
}
