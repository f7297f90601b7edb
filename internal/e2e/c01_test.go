package e2e

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// TestB001: a command that timed out is gone, and the call says so.
func TestB001(t *testing.T) {
	t.Parallel()
	box := Shared(t)
	began := time.Now()
	res := box.Exec(sandbox.Command{Shell: "sleep 33333", Timeout: time.Second}, nil)
	Within(t, began, 3*time.Second)
	if res.Outcome != sandbox.TimedOut || res.ShellCode() != 124 || res.Duration < time.Second {
		t.Errorf("got %s, want timed_out after a second", Describe(res))
	}
	if n := box.Count("33333"); n != 0 {
		t.Errorf("%d processes still run", n)
	}

	v := RunJSON(t, []string{"--timeout", "1s"}, "sleep", "33333")
	if !v.TimedOut || v.ExitCode != 124 || v.Outcome != "timed_out" {
		t.Errorf("run --json: %+v, want timed_out and 124", v)
	}
}

// TestB002: busy loops that timed out use no CPU afterwards.
func TestB002(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	// The shell counts by itself: children that it forks for the counting
	// would be in the list or not, as it happens.
	processes := func() int {
		res := box.Sh("set -- /proc/[0-9]*; echo $#")
		n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
		if err != nil {
			t.Fatalf("%v: %s", err, Describe(res))
		}
		return n
	}
	before := processes()
	for range 5 {
		res := box.Exec(sandbox.Command{Shell: "while :; do :; done", Timeout: time.Second}, nil)
		if res.Outcome != sandbox.TimedOut {
			t.Errorf("got %s, want timed_out", Describe(res))
		}
	}
	if after := processes(); after != before {
		t.Errorf("%d processes after the loops, %d before", after, before)
	}
	// One loop that lives on would use a whole second of each second; the
	// sandbox is allowed one core.
	var used time.Duration
	for range 3 {
		start := CPUTime(t, box.ID)
		time.Sleep(time.Second)
		if used = CPUTime(t, box.ID) - start; used < 300*time.Millisecond {
			return
		}
	}
	t.Errorf("an idle sandbox used %v of CPU time in a second", used)
}

// TestB005: one-shot runs that time out leave nothing on the host.
func TestB005(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	watch := WatchResidue(dir)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 5 {
				out := Run(t, dir, "", "run", "--timeout", "2s", Image, "--", "sh", "-c", "while :; do :; done")
				if out.Code != 124 {
					t.Errorf("status %d, want 124: %s", out.Code, out.Stderr)
				}
			}
		})
	}
	wg.Wait()
	if n := watch.Check(t); n != 10 {
		t.Errorf("saw %d owners, want 10: the watch did not look at what ran", n)
	}
}

// TestB007: nothing waits for a grandchild that holds the output of a command
// that was killed.
func TestB007(t *testing.T) {
	t.Parallel()
	box := Shared(t)
	began := time.Now()
	res := box.Exec(sandbox.Command{Shell: "setsid sh -c 'sleep 23333' & exec sleep 24444", Timeout: time.Second}, nil)
	Within(t, began, 3*time.Second)
	if res.Outcome != sandbox.TimedOut {
		t.Errorf("got %s, want timed_out", Describe(res))
	}
	box.WaitCount("23333", 0, Slack())
	box.WaitCount("24444", 0, Slack())
}
