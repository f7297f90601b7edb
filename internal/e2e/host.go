package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cgroupRoot is where Linux distributions mount control groups.
const cgroupRoot = "/sys/fs/cgroup"

// SandboxPids are the host processes whose command line names the sandbox.
func SandboxPids(t testing.TB, id string) []int {
	t.Helper()
	var out []int
	for _, pid := range pids(t) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && bytes.Contains(b, []byte(id)) {
			out = append(out, pid)
		}
	}
	return out
}

// CPUTime is what a sandbox used so far, as its control group on the host
// counts it.
func CPUTime(t testing.TB, id string) time.Duration {
	t.Helper()
	var total time.Duration
	found := false
	for _, dir := range cgroupDirs(id) {
		if b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil { // version 1
			n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			total, found = time.Duration(n), true
		}
		if b, err := os.ReadFile(filepath.Join(dir, "cpu.stat")); err == nil { // version 2
			if rest, ok := strings.CutPrefix(string(b), "usage_usec "); ok {
				line, _, _ := strings.Cut(rest, "\n")
				n, _ := strconv.ParseInt(line, 10, 64)
				total, found = time.Duration(n)*time.Microsecond, true
			}
		}
	}
	if !found {
		t.Fatalf("no control group of sandbox %s counts CPU time", id)
	}
	return total
}

// cgroupDirs are the control group directories of that name, in every
// hierarchy.
func cgroupDirs(name string) []string {
	var out []string
	_ = filepath.WalkDir(cgroupRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if d.IsDir() && d.Name() == name {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// Residue watches a data directory while agentbox works in it.
type Residue struct {
	dir  string
	stop chan struct{}
	done chan map[string]bool
}

// WatchResidue begins to note the owners that appear in dataDir: their names
// are those of control groups, too.
func WatchResidue(dataDir string) *Residue {
	r := &Residue{dir: dataDir, stop: make(chan struct{}), done: make(chan map[string]bool, 1)}
	go func() {
		seen := map[string]bool{}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, o := range owners(dataDir) {
				seen[o] = true
			}
			select {
			case <-tick.C:
			case <-r.stop:
				r.done <- seen
				return
			}
		}
	}()
	return r
}

func owners(dataDir string) []string {
	entries, _ := os.ReadDir(filepath.Join(dataDir, "owners"))
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// Check ends the watch and fails the test for everything that is left: owners,
// processes, mounts, control groups. It returns how many owners were seen.
func (r *Residue) Check(t testing.TB) int {
	t.Helper()
	close(r.stop)
	seen := <-r.done
	if left := owners(r.dir); len(left) > 0 {
		t.Errorf("owner directories left: %v", left)
	}
	if n := Count(t, r.dir+"/owners"); n > 0 {
		t.Errorf("%d processes left that name %s", n, r.dir)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil {
		t.Error(err)
	} else if strings.Contains(string(mounts), r.dir+"/owners") {
		t.Errorf("mounts left below %s", r.dir)
	}
	for o := range seen {
		if left := cgroupDirs(o); len(left) > 0 {
			t.Errorf("control groups left: %v", left)
		}
	}
	return len(seen)
}
