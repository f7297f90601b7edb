package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// TestRES01: a fork bomb gets EAGAIN; the sandbox, its agent and the neighbour
// live on.
func TestRES01(t *testing.T) {
	const pids = 256
	box := NewBox(t, sandbox.Limits{Pids: pids})
	began := time.Now()
	box.Want("", "for i in 0 1 2 3 4 5 6 7 8 9; do (:); done")
	// Time for the bomb to go off, twice as long as its forks take.
	limit := 4*time.Second + 2*pids*time.Since(began)/10
	check := Neighbour(t)
	stop := box.KeepsAlive("the agent under a fork bomb")
	var out Lines
	began = time.Now()
	r := box.Go(sandbox.Command{
		Argv: []string{"bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 600"},
		User: "root", Timeout: limit,
	}, &out).Result()
	Within(t, began, limit+2*time.Second)
	if r.Outcome != sandbox.TimedOut {
		t.Errorf("the bomb: %s, want timed_out", Describe(r))
	}
	stop()
	check()
	lines, _ := out.Get()
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "Resource temporarily unavailable") {
		t.Errorf("no fork was refused with EAGAIN: %.500q", text)
	}
	if err := box.Answers(); err != nil {
		t.Errorf("after the bomb: %v", err)
	}
	if n := box.Count("bomb"); n > 0 {
		t.Errorf("%d processes of the bomb are left", n)
	}
}

// TestRES01_Count: the limit of processes is what was asked for, for guest root
// and for an ordinary user, and what ended makes room again.
func TestRES01_Count(t *testing.T) {
	t.Parallel()
	const limit = 64
	box := NewBox(t, sandbox.Limits{Pids: limit})
	for _, user := range []string{"root", ""} {
		f := box.RunProbe("res01", user)
		f.Want("fork", "EAGAIN")
		if n, _ := strconv.Atoi(f.Get("children")); n > limit || n < limit/2 {
			t.Errorf("user %q: %d children, want at most %d and not many fewer", user, n, limit)
		}
		f.Want("fork again", "OK")
	}
}

// TestRES03: who takes more memory than the limit ends with the reason; all
// that ran in the sandbox has one, and the neighbour is untouched.
func TestRES03(t *testing.T) {
	Need(t, len(Engine(t).Capabilities().NotEnforced) == 0, "a memory control group")
	const limit = 128
	box := NewBox(t, sandbox.Limits{Memory: limit * sandbox.MiB})
	check := Neighbour(t)
	var quiet, out Lines
	bystander := box.Go(sandbox.Command{Shell: "echo ready; sleep 600"}, &quiet)
	quiet.WaitFor(t, "ready", 10*time.Second)
	began := time.Now()
	hog := box.Go(Probe(t, "res03", "root", strconv.Itoa(2*limit)), &out)
	r := hog.Result()
	lines, last := out.Get()
	if len(lines) == 0 || lines[0] != "begin" {
		t.Fatalf("the hog did not begin: %s %q", Describe(r), lines)
	}
	t.Logf("the hog held %s MiB and ended %v after its last word, %v after its begin: %s",
		lines[len(lines)-1], hog.Ended.Sub(last).Round(time.Millisecond), hog.Ended.Sub(began).Round(time.Millisecond), Describe(r))
	if r.Outcome != sandbox.OOM || r.ShellCode() != 137 {
		t.Errorf("the hog: %s, want oom", Describe(r))
	}
	if d := hog.Ended.Sub(last); d > 5*time.Second+Slack() {
		t.Errorf("the result came %v after the hog's last word", d)
	}
	if held, _ := strconv.Atoi(lines[len(lines)-1]); held < limit/2 {
		t.Errorf("the hog ended at %d MiB, far below the limit of %d", held, limit)
	}
	// Either only the hog died, or all did, for the same reason.
	if err := box.Answers(); err == nil {
		t.Log("the sandbox lives on")
		if !bystander.Running() {
			t.Errorf("the sandbox lives, but a bystander ended: %s", Describe(bystander.Result()))
		}
	} else if r := bystander.Result(); r.Outcome != sandbox.OOM {
		t.Errorf("the bystander: %s, want oom", Describe(r))
	} else if d := bystander.Ended.Sub(last); d > 5*time.Second+Slack() {
		t.Errorf("the bystander's result came %v after the hog's last word", d)
	}
	check()
	v := RunJSON(t, []string{"--memory", fmt.Sprint(limit) + "m"}, Probe(t, "res03", "", strconv.Itoa(2*limit)).Argv...)
	if !v.OOMKilled || v.Outcome != "oom" || v.ExitCode != 137 || v.Reason == "" {
		t.Errorf("run --json: outcome %s, code %d, reason %q, want oom and 137", v.Outcome, v.ExitCode, v.Reason)
	}
}

// freeBytes is what the host's file system with the data directory has free.
func freeBytes(t testing.TB) int64 {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(SharedDir(t), &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bfree) * fs.Bsize
}

// TestRES05: every place that user code writes to ends at the disk's size.
func TestRES05(t *testing.T) {
	t.Parallel()
	const quota = 96
	box := NewBox(t, sandbox.Limits{Disk: quota * sandbox.MiB})
	box.Exec(sandbox.Command{Shell: "mkdir -p /mnt/user-data/outputs", User: "root"}, nil)
	check := Neighbour(t)
	stop := box.KeepsAnswering("the agent under a full disk")
	dirs := []string{"/", "/workspace", "/tmp", "/var/tmp", "/mnt/user-data/outputs"}
	f := box.RunProbe("res05", "root", append([]string{strconv.Itoa(3 * quota)}, dirs...)...)
	stop()
	check()
	for _, d := range dirs {
		f.Want(d+" result", "ENOSPC")
		f.Want(d+" again", "OK")
		for what, least := range map[string]float64{" statvfs": 0.95, " written": 0.95} {
			n, err := strconv.ParseFloat(f.Get(d+what), 64)
			if err != nil || n < least*quota*float64(sandbox.MiB) || n > 1.05*quota*float64(sandbox.MiB) {
				t.Errorf("%s%s: %v MiB, want %d ± 5 %%", d, what, n/float64(sandbox.MiB), quota)
			}
		}
	}
}

// TestRES05_Host: a sandbox takes no more of the host's disk than its own.
func TestRES05_Host(t *testing.T) {
	const quota = 96
	box := NewBox(t, sandbox.Limits{Disk: quota * sandbox.MiB})
	before := freeBytes(t)
	r := box.Exec(sandbox.Command{Shell: "dd if=/dev/urandom of=/workspace/fill bs=1M; sync; exit 0", User: "root"}, nil)
	if !strings.Contains(string(r.Stderr), "No space left on device") {
		t.Fatalf("dd: %s", Describe(r))
	}
	// Others on this machine write, too: half as much again is theirs.
	if took := before - freeBytes(t); took > quota*sandbox.MiB*3/2 {
		t.Errorf("the host has %d MiB less, the sandbox may use %d", took/sandbox.MiB, quota)
	}
}

// TestRES06: 100,000 files, deep directories, long names and many attributes
// end well or with an error of their own, and are gone quickly.
func TestRES06(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	check := Neighbour(t)
	stop := box.KeepsAnswering("the agent under 100,000 files")
	f := box.RunProbe("res06", "root", "100000", "5000", "100000")
	stop()
	for what, want := range map[string]int{"files": 100_000, "depth": 5_000, "xattrs": 100_000} {
		n, _ := strconv.Atoi(f.Get(what))
		t.Logf("%s: %d, %s", what, n, f.Get(what+" result"))
		if n != want {
			f.Want(what+" result", "ENOSPC", "EDQUOT", "ENAMETOOLONG", "EOPNOTSUPP", "E2BIG", "EMFILE")
		}
	}
	f.Want("name of 256", "ENAMETOOLONG")
	f.Want("long names", "100")
	began := time.Now()
	entries, next, err := box.Session().List(t.Context(), "/workspace/many", listAsRoot)
	if err != nil || len(entries) < 100 {
		t.Errorf("list: %d entries, next %q, %v", len(entries), next, err)
	}
	Within(t, began, time.Second)
	check()
	began = time.Now()
	if err := box.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	Within(t, began, 30*time.Second)
}

// peakRSS is the most memory that the process used.
func peakRSS(cmd *exec.Cmd) int64 {
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// TestRES08: a gigabyte of output is passed on, or cut at the cap with a flag,
// and agentbox does not grow by it.
func TestRES08(t *testing.T) {
	run := func(flags []string, shell string) (n int64, stdout string, rss int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		args := append(append([]string{"--data-dir", SharedDir(t), "run"}, flags...), Image, "--", "sh", "-c", shell)
		cmd := exec.CommandContext(ctx, Binary(t), args...)
		w := &countWriter{keep: 8 << 20}
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return w.n, string(w.head), peakRSS(cmd)
	}
	_, _, idle := run(nil, "echo hi")
	began := time.Now()
	n, head, rss := run(nil, "head -c 1000000000 /dev/zero")
	t.Logf("streamed %d bytes in %v, %d MiB resident at most, %d MiB without output", n, time.Since(began).Round(time.Millisecond), rss>>20, idle>>20)
	if n != 1_000_000_000 || head != strings.Repeat("\x00", len(head)) {
		t.Errorf("streamed %d bytes", n)
	}
	if rss-idle > 32*sandbox.MiB {
		t.Errorf("agentbox grew by %d MiB", (rss-idle)>>20)
	}

	const keep = 1 << 20
	_, text, rss := run([]string{"--json", "--max-output", strconv.Itoa(keep)}, "yes | head -c 100000000 | tee /dev/stderr")
	t.Logf("captured: %d MiB resident at most", rss>>20)
	v := parseVerdict(t, text)
	if !v.Truncated.Stdout || !v.Truncated.Stderr || len(v.Stdout) != keep || len(v.Stderr) != keep || v.ExitCode != 0 {
		t.Errorf("captured %d and %d bytes, truncated %+v, code %d; want %d and both", len(v.Stdout), len(v.Stderr), v.Truncated, v.ExitCode, keep)
	}
	if rss-idle > 32*sandbox.MiB {
		t.Errorf("agentbox grew by %d MiB", (rss-idle)>>20)
	}
	box := NewBox(t, sandbox.Limits{})
	stop := box.KeepsAnswering("the agent under output")
	r := box.Exec(sandbox.Command{Shell: "yes | head -c 200000000"}, nil)
	stop()
	if !r.StdoutTruncated || len(r.Stdout) != sandbox.DefaultMaxOutput || r.ShellCode() != 0 {
		t.Errorf("captured with the default: %d bytes, truncated %v, %v %d", len(r.Stdout), r.StdoutTruncated, r.Outcome, r.ExitCode)
	}
}

// countWriter counts bytes and keeps the first ones.
type countWriter struct {
	n, keep int64
	head    []byte
}

func (w *countWriter) Write(b []byte) (int, error) {
	w.n += int64(len(b))
	if room := w.keep - int64(len(w.head)); room > 0 {
		w.head = append(w.head, b[:min(room, int64(len(b)))]...)
	}
	return len(b), nil
}

// TestRES10: spinning threads get the CPU time that they may have and no more.
func TestRES10(t *testing.T) {
	Need(t, len(Engine(t).Capabilities().NotEnforced) == 0, "a cpu control group")
	box := NewBox(t, sandbox.Limits{CPUs: 0.5})
	check := Neighbour(t)
	var out Lines
	spin := box.Go(sandbox.Command{Shell: "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; echo ready; wait", User: "root"}, &out)
	out.WaitFor(t, "ready", 10*time.Second)
	time.Sleep(time.Second) // what they may use in advance is used
	began, used := time.Now(), CPUTime(t, box.ID)
	time.Sleep(6 * time.Second)
	used, wall := CPUTime(t, box.ID)-used, time.Since(began)
	share := float64(used) / float64(wall)
	t.Logf("%.3f cores", share)
	if share > 0.55 {
		t.Errorf("the sandbox used %.3f cores, may use 0.5", share)
	}
	if share < 0.1 {
		t.Errorf("the sandbox used %.3f cores: nothing spins", share)
	}
	if !spin.Running() {
		t.Errorf("the threads ended: %s", Describe(spin.Result()))
	}
	if err := box.Answers(); err != nil {
		t.Errorf("the agent beside spinning threads: %v", err)
	}
	check()
}

// TestRES12: whatever a command does, at its timeout all of it is gone.
func TestRES12(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	box := NewBox(t, sandbox.Limits{})
	for name, line := range map[string]string{
		"sleep":        "echo begun; sleep 31415",
		"trap":         "trap '' TERM INT HUP; echo begun; while :; do sleep 31415; done",
		"busy":         "echo begun; while :; do : 31415; done",
		"fifo":         "mkfifo /tmp/31415; echo begun; exec 3</tmp/31415",
		"child":        "sleep 31415 & echo begun; wait",
		"own session":  "setsid sleep 31415 & (setsid sh -c 'sleep 31415 & sleep 31415' &); echo begun; sleep 31415",
		"ignores":      "echo begun; exec python3 -c 'import signal,time; [signal.signal(s, signal.SIG_IGN) for s in (1,2,15)]; time.sleep(31415)'",
		"stopped":      "echo begun; kill -STOP $$; echo 31415",
		"closed files": "echo begun; exec >&- 2>&- <&-; sleep 31415",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := box.With(t)
			began := time.Now()
			r := box.Exec(sandbox.Command{Shell: line, User: "root", Timeout: timeout}, nil)
			Within(t, began, timeout+2*time.Second)
			if r.Outcome != sandbox.TimedOut || r.ShellCode() != 124 || string(r.Stdout) != "begun\n" {
				t.Errorf("%s, want timed_out with the output so far", Describe(r))
			}
		})
	}
	t.Cleanup(func() { // after the subtests, before the sandbox goes
		box.WaitCount("31415", 0, 2*time.Second)
	})
}

// TestRES12_Background: a child that keeps the output open does not hold up the
// result, and lives on: it dies with its sandbox, not before.
func TestRES12_Background(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	began := time.Now()
	r := box.Exec(sandbox.Command{Shell: "sleep 27182 & echo done"}, nil)
	Within(t, began, 2*time.Second)
	WantExit(t, r, 0, "done\n", "")
	if n := box.Count("27182"); n != 1 {
		t.Errorf("%d background children live on, want 1", n)
	}
	box.Want("next\n", "echo next")
	if n := box.Count("27182"); n != 1 {
		t.Errorf("%d background children live on after the next command, want 1", n)
	}
}

// TestRES13: of 10,000 orphans that died, none stays a zombie.
func TestRES13(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{Pids: 256})
	stop := box.KeepsAnswering("the agent under 10,000 zombies")
	f := box.RunProbe("res13", "root", "10000", "100")
	stop()
	if n, _ := strconv.Atoi(f.Get("made")); n < 10_000 {
		t.Errorf("%d zombies were made", n)
	}
	if n, _ := strconv.Atoi(f.Get("zombies of one mother")); n < 50 {
		t.Errorf("a mother had only %d zombies: none were left to the first process", n)
	}
	if n, err := strconv.Atoi(f.Get("zombies")); err != nil || n > 10 {
		t.Errorf("%s zombies are left after 5 s", f.Get("zombies"))
	}
}
