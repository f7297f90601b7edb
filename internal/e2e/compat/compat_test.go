package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/e2e"
)

const (
	recipe = "testdata/compat.recipe"
	driver = "testdata/driver.py"
)

// TestRealPrograms runs the suites; AGENTBOX_COMPAT=full runs all of them, and
// AGENTBOX_COMPAT_STATE names a file to remember in what has run.
func TestRealPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the suites of real programs take minutes")
	}
	units, err := ParseUnits(read(t, "testdata/units.txt"))
	if err != nil {
		t.Fatal(err)
	}
	expected, err := ParseExpected(read(t, "testdata/expected.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range expected {
		if !slices.ContainsFunc(units, func(u Unit) bool { return u.Name == name }) {
			t.Errorf("failures of %s are expected, which is no unit", name)
		}
	}
	if os.Getenv("AGENTBOX_COMPAT") != "full" {
		units = slices.DeleteFunc(units, func(u Unit) bool { return !u.CI })
	}
	state, err := OpenState(os.Getenv("AGENTBOX_COMPAT_STATE"))
	if err != nil {
		t.Fatal(err)
	}
	image := makeImage(t)
	var all totals
	t.Cleanup(func() { t.Log(all.String()) })
	// The long ones first, so that no processor idles at the end.
	slices.SortStableFunc(units, func(a, b Unit) int { return int(b.Limit - a.Limit) })
	for _, u := range units {
		t.Run(u.Name, func(t *testing.T) {
			t.Parallel()
			all.add(judge(t, state, image, u, expected[u.Name]))
		})
	}
}

// makeImage builds the image, whose name says which recipe it is of.
func makeImage(t *testing.T) string {
	t.Helper()
	key, err := Key([]string{recipe})
	if err != nil {
		t.Fatal(err)
	}
	name := "compat-" + key[:8]
	dir := e2e.SharedDir(t)
	if out := e2e.Run(t, dir, "", "images", "ls"); strings.Contains(out.Stdout, name+" ") {
		return name
	}
	t.Logf("building the image %s, once (some minutes)", name)
	args := []string{"images", "build", "--recipe", recipe, name}
	if mirror := os.Getenv("MIRROR"); mirror != "" {
		args = append(args, "--mirror", mirror)
	}
	if out := e2e.RunWithin(t, time.Hour, dir, "", args...); out.Code != 0 {
		t.Fatalf("build the image: %s", out.Stderr)
	}
	return name
}

func judge(t *testing.T, state *State, image string, u Unit, e Expected) Report {
	key, err := Key([]string{e2e.Binary(t), driver}, image, strings.Join(e.Omit, " "))
	if err != nil {
		t.Fatal(err)
	}
	report, known := state.Get(u.Name, key)
	if !known {
		report = runUnit(t, image, u, e)
		if report.Error == "" {
			if err := state.Put(u.Name, key, report); err != nil {
				t.Fatal(err)
			}
		}
	}
	remark := ""
	if known {
		remark = ", as remembered"
	}
	t.Logf("%d passed, %d skipped, %d failed, %.0f s%s", report.Passed, report.Skipped, len(report.Failed), report.Seconds, remark)
	for _, wrong := range report.Judge(e) {
		t.Error(wrong)
	}
	return report
}

// totals are the figures of a whole run.
type totals struct {
	mu                              sync.Mutex
	suites, passed, skipped, failed int
}

func (a *totals) add(r Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.suites++
	a.passed += r.Passed
	a.skipped += r.Skipped
	a.failed += len(r.Failed)
}

func (a *totals) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%d suites: %d tests passed, %d skipped, %d failed", a.suites, a.passed, a.skipped, a.failed)
}

// runUnit runs one unit in a sandbox of its own.
func runUnit(t *testing.T, image string, u Unit, e Expected) Report {
	t.Helper()
	// The driver ends the suite; the sandbox's own limit is for a driver that hangs.
	args := []string{
		"run", "--memory", "1g", "--cpus", "1", "--pids", "1024", "--timeout", (u.Limit + time.Minute).String(),
		"--copy", driver + ":/tmp/driver.py", image, "--",
		"python3", "/tmp/driver.py", u.Name, strconv.Itoa(int(u.Limit.Seconds())),
	}
	out := e2e.RunWithin(t, u.Limit+5*time.Minute, e2e.SharedDir(t), "", append(args, e.Omit...)...)
	var r Report
	if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
		r.Error = fmt.Sprintf("status %d, %v: %s", out.Code, err, out.Stderr)
	}
	return r
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
