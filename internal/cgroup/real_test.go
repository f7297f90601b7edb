package cgroup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/cgroup"
)

// helperEnv makes the test binary act as a program inside a group.
const helperEnv = "CGROUP_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "sleep":
		time.Sleep(time.Minute)
	case "hog": // touches memory until the limit ends it
		var all [][]byte
		for range 512 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		fmt.Println("survived", len(all))
	case "burn":
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		}
	}
}

// helper is a program that joins g and then does what.
func helper(g *cgroup.Group, what string) *exec.Cmd {
	cmd := inGroup(g, "/proc/self/exe")
	cmd.Env = []string{helperEnv + "=" + what, "GOMAXPROCS=1"}
	return cmd
}

// inGroup is a program whose only thread joins g before it becomes argv. (The
// shell's /proc/self/exe would be the shell.)
func inGroup(g *cgroup.Group, argv ...string) *exec.Cmd {
	if argv[0] == "/proc/self/exe" {
		argv[0], _ = os.Executable()
	}
	join, _ := g.JoinFiles()
	script := `n=$1; shift; while [ $n -gt 0 ]; do echo 0 >"$1" || exit 99; shift; n=$((n-1)); done; exec "$@"`
	args := append([]string{"-c", script, "sh", strconv.Itoa(len(join))}, join...)
	return exec.Command("/bin/sh", append(args, argv...)...)
}

// host is the real machine's; tests that need it say why they can't run.
func host(t *testing.T) *cgroup.Host {
	t.Helper()
	h := cgroup.Detect(cgroup.Options{Owner: "test-" + strconv.Itoa(os.Getpid())})
	t.Logf("%v: %s, not enforced: %v", h.Mode(), h.Reason(), h.NotEnforced())
	if h.Mode() == cgroup.None {
		t.Skipf("no control groups to be used here: %s", h.Reason())
	}
	if n := h.NotEnforced(); len(n) > 0 {
		t.Skipf("the host does not offer %v", n)
	}
	return h
}

func create(t *testing.T, h *cgroup.Host, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	g, err := h.Create("sandbox", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Remove()); err != nil {
			t.Error(err)
		}
	})
	return g
}

func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func read(t *testing.T, g *cgroup.Group, file string) string {
	t.Helper()
	for _, d := range g.Dirs() {
		if b, err := os.ReadFile(filepath.Join(d, file)); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("no %s in %v", file, g.Dirs())
	return ""
}

// POS-07: what the host enforces is what was asked for.
func TestPOS07HostFilesHoldTheLimits(t *testing.T) {
	h := host(t)
	g := create(t, h, cgroup.Limits{Memory: 200 << 20, Pids: 256})
	if err := g.SetCPUs(1.5); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"memory.limit_in_bytes": "209715200", "cpu.cfs_quota_us": "150000", "cpu.cfs_burst_us": "150000", "cpu.cfs_period_us": "100000", "pids.max": "4096"}
	if h.Mode() == cgroup.V2 {
		want = map[string]string{"memory.max": "209715200", "cpu.max": "150000 100000", "cpu.max.burst": "150000", "pids.max": "4096"}
	}
	for file, v := range want {
		if got := read(t, g, file); got != v {
			t.Errorf("%s = %q, want %q", file, got, v)
		}
	}
	for _, n := range []int64{2, 1, 3} { // they grow and shrink
		if err := errors.Join(g.SetCPUs(float64(n)/2), g.SetLimits(cgroup.Limits{Memory: n * 100 << 20, Pids: 256})); err != nil {
			t.Fatal(err)
		}
		file := map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[h.Mode() == cgroup.V2]
		if got, want := read(t, g, file), strconv.FormatInt(n*100<<20, 10); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
}

func TestMemoryLimitKillsAndIsCounted(t *testing.T) {
	g := create(t, host(t), cgroup.Limits{Memory: 64 << 20, Pids: 256})
	cmd := helper(g, "hog")
	start(t, cmd)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Fatalf("the hog ended with %v, want a kill", err)
	}
	if n := g.OOMKills(); n < 1 {
		t.Errorf("OOM kills = %d, want at least 1", n)
	}
	if s := g.Stats(); s.PeakMemory > 65<<20 || s.PeakMemory < 32<<20 && s.PeakMemory != 0 {
		t.Errorf("peak memory = %d, want about the limit", s.PeakMemory)
	}
}

func TestProcsAreThoseThatJoined(t *testing.T) {
	g := create(t, host(t), cgroup.Limits{Memory: 64 << 20, Pids: 256})
	cmd := helper(g, "sleep")
	start(t, cmd)
	eventually(t, "the child in the group", func() bool {
		all, err := g.Procs()
		return err == nil && slices.Equal(all, []int{cmd.Process.Pid})
	})
	eventually(t, "the child among the tasks", func() bool { return g.Stats().Pids >= 1 })
}

func TestKillEndsAForkBomb(t *testing.T) {
	h := host(t)
	g := create(t, h, cgroup.Limits{Memory: 256 << 20, Pids: 256})
	cmd := inGroup(g, "/bin/sh", "-c", "b() { b | b & }; b; sleep 60")
	start(t, cmd)
	eventually(t, "a crowd", func() bool { return g.Stats().Pids > 100 })
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if all, err := g.Procs(); err != nil || len(all) != 0 {
		t.Errorf("after Kill: %d processes, %v", len(all), err)
	}
	if err := g.Kill(); err != nil {
		t.Errorf("Kill of an empty group: %v", err)
	}
}

func TestCPUQuotaAndTime(t *testing.T) {
	g := create(t, host(t), cgroup.Limits{Memory: 64 << 20, Pids: 256})
	if err := g.SetCPUs(0.2); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	start(t, helper(g, "burn"))
	eventually(t, "200 ms of CPU time", func() bool { return g.Stats().CPUTime >= 200*time.Millisecond })
	if wall := time.Since(began); wall < 600*time.Millisecond {
		t.Errorf("a fifth of a core gave 200 ms within %v", wall)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	h := host(t)
	g, err := h.Create("a", cgroup.Limits{Memory: 64 << 20, Pids: 256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create("a", cgroup.Limits{Memory: 64 << 20, Pids: 256}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create: %v, want ErrExist", err)
	}
	b, err := h.Create("b", cgroup.Limits{Memory: 64 << 20, Pids: 256})
	if err != nil {
		t.Fatal(err)
	}
	owner := "test-" + strconv.Itoa(os.Getpid())
	all, err := h.List(owner)
	if err != nil || len(all) != 2 || all[0].ID() != "a" || all[1].ID() != "b" {
		t.Fatalf("List = %v, %v", all, err)
	}
	for _, x := range []*cgroup.Group{g, b, g} {
		if err := errors.Join(x.Kill(), x.Remove()); err != nil {
			t.Error(err)
		}
	}
	for _, d := range g.Dirs() {
		if _, err := os.Stat(filepath.Dir(d)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the owner's directory is left: %v", err)
		}
	}
	if all, err := h.List(owner); err != nil || len(all) != 0 {
		t.Errorf("List = %v, %v", all, err)
	}
}

// What is created while others remove their last group is not harmed.
func TestCreateAndRemoveAtOnce(t *testing.T) {
	h := host(t)
	errs := make(chan error)
	for i := range 4 {
		go func() {
			var err error
			for n := range 25 {
				g, e := h.Create(fmt.Sprintf("c%d-%d", i, n), cgroup.Limits{Memory: 64 << 20, Pids: 256})
				if err = errors.Join(err, e); e == nil {
					err = errors.Join(err, g.Remove())
				}
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// BenchmarkGroup is what limiting a process costs beside its start.
func BenchmarkGroup(b *testing.B) {
	h := cgroup.Detect(cgroup.Options{Owner: "bench-" + strconv.Itoa(os.Getpid())})
	if h.Mode() == cgroup.None {
		b.Skip(h.Reason())
	}
	var made, joined, removed time.Duration
	for b.Loop() {
		t0 := time.Now()
		g, err := h.Create("sandbox", cgroup.Limits{Memory: 64 << 20, Pids: 256})
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := inGroup(g, "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		if err := errors.Join(g.Kill(), g.Remove()); err != nil {
			b.Fatal(err)
		}
		made, joined, removed = made+t1.Sub(t0), joined+t2.Sub(t1), removed+time.Since(t2)
	}
	n := float64(b.N) * 1e6
	b.ReportMetric(float64(made.Nanoseconds())/n, "ms-create")
	b.ReportMetric(float64(joined.Nanoseconds())/n, "ms-join+run")
	b.ReportMetric(float64(removed.Nanoseconds())/n, "ms-kill+remove")
}
