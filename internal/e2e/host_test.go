package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// doctorReport is what agentbox doctor --json prints, as far as it matters here.
type doctorReport struct {
	Mode        string   `json:"mode"`
	NotEnforced []string `json:"not_enforced"`
	Checks      []struct{ ID, Status, Detail, Fix string }
}

func doctor(t *testing.T, dataDir string) (doctorReport, Out) {
	t.Helper()
	out := Run(t, dataDir, "", "doctor", "--json")
	var r doctorReport
	if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
		t.Fatalf("doctor printed no report (status %d): %v\n%s\n%s", out.Code, err, out.Stdout, out.Stderr)
	}
	return r, out
}

// needLimits skips where the host enforces nothing; `make test-cgroup2` runs
// these tests in each mode.
func needLimits(t *testing.T) {
	t.Helper()
	if r, _ := doctor(t, SharedDir(t)); slices.Contains(r.NotEnforced, "memory") {
		t.Skip("in this mode the host enforces no limits: " + r.Mode)
	}
}

// groups returns the control groups of the sandboxes that dataDir's owners run.
func groups(t *testing.T, dataDir string) []string {
	t.Helper()
	owners, _ := filepath.Glob(filepath.Join(dataDir, "owners", "*"))
	var all []string
	// Cgroups come and go while we walk: errors are no failures.
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		for _, o := range owners {
			if strings.HasSuffix(filepath.Dir(p), "/agentbox/"+filepath.Base(o)) {
				all = append(all, p)
			}
		}
		return nil
	})
	return all
}

// inSandbox runs f while a sandbox with flags is alive, and gives it the host's
// control group files.
func inSandbox(t *testing.T, flags []string, script string, f func(file func(name string) string)) {
	t.Helper()
	dataDir := DataDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	args := slices.Concat([]string{"run", "-i"}, flags, []string{Image, "--", "sh", "-c", script})
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+dataDir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close() // the script reads to its end
		if err := cmd.Wait(); err != nil {
			t.Errorf("the sandbox ended: %v\n%s", err, stderr.String())
		}
	}()
	if n, err := stdout.Read(make([]byte, 64)); n == 0 {
		t.Fatalf("the sandbox said nothing: %v\n%s", err, stderr.String())
	}
	dirs := groups(t, dataDir)
	if len(dirs) == 0 {
		t.Fatal("the sandbox has no control group")
	}
	f(func(name string) string {
		for _, d := range dirs {
			if b, err := os.ReadFile(filepath.Join(d, name)); err == nil {
				return strings.TrimSpace(string(b))
			}
		}
		return ""
	})
}

// What is asked for is what the host enforces, and the guest is refused a
// process long before the host would refuse the engine one.
func TestPOS07(t *testing.T) {
	needLimits(t)
	flags := []string{"--memory", "200m", "--cpus", "0.5", "--pids", "100"}
	inSandbox(t, flags, "echo up; cat", func(file func(string) string) {
		v2 := file("memory.max") != ""
		memory, cpu := file("memory.limit_in_bytes"), file("cpu.cfs_quota_us")+" "+file("cpu.cfs_period_us")
		if v2 {
			memory, cpu = file("memory.max"), file("cpu.max")
		}
		if want := strconv.Itoa(200 << 20); memory != want {
			t.Errorf("memory limit on the host is %s, want %s", memory, want)
		}
		if cpu != "50000 100000" {
			t.Errorf("cpu quota on the host is %s, want half of a period", cpu)
		}
		if n, err := strconv.Atoi(file("pids.max")); err != nil || n < 4096 {
			t.Errorf("pids.max on the host is %q, want far more than 100", file("pids.max"))
		}
	})
}

// A guest that is at its limit of processes is far from the host's, at which
// the engine would die.
func TestPOS07_BackstopIsNotReached(t *testing.T) {
	needLimits(t)
	// A shell that can't fork ends; the outer one forks no more.
	script := "(for i in $(seq 150); do sleep 600 & done) 2>/dev/null; echo up; read x; true"
	inSandbox(t, []string{"--pids", "128"}, script, func(file func(string) string) {
		now, err1 := strconv.Atoi(file("pids.current"))
		most, err2 := strconv.Atoi(file("pids.max"))
		if err1 != nil || err2 != nil || now < 128 || now > most/2 {
			t.Errorf("%s of %s host tasks with 128 guest processes", file("pids.current"), file("pids.max"))
		}
		if n := file("pids.events"); n != "max 0" {
			t.Errorf("the host refused a fork: pids.events = %q", n)
		}
		t.Logf("128 guest processes are %d host tasks of %d", now, most)
	})
}

// The quota holds: a loop that wants a whole core gets what was asked for.
func TestCPULimitHolds(t *testing.T) {
	needLimits(t)
	inSandbox(t, []string{"--cpus", "0.3"}, "while :; do :; done & echo up; cat", func(file func(string) string) {
		used := func() time.Duration {
			if ns, err := strconv.ParseInt(file("cpuacct.usage"), 10, 64); err == nil {
				return time.Duration(ns)
			}
			for line := range strings.Lines(file("cpu.stat")) {
				if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
					n, _ := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
					return time.Duration(n) * time.Microsecond
				}
			}
			t.Fatal("the host does not tell the CPU time")
			return 0
		}
		before, began := used(), time.Now()
		time.Sleep(3 * time.Second) // 30 periods of the quota
		share := float64(used()-before) / float64(time.Since(began))
		if share < 0.05 || share > 0.4 {
			t.Errorf("the sandbox got %.2f of a core, want about 0.3", share)
		}
		t.Logf("a busy loop with 0.3 CPUs got %.2f", share)
	})
}

// B071 again: the verdict of a sandbox that the kernel's OOM killer met says so.
func TestB071_Verdict(t *testing.T) {
	needLimits(t)
	v := RunJSON(t, []string{"--memory", "200m"}, "python3", "-c", "b = bytearray(10**9)")
	if v.ExitCode != 137 || !v.OOMKilled || v.Outcome != "oom" || !strings.Contains(v.Reason, "memory") {
		t.Errorf("%+v, want 137, oom_killed and the memory limit as the reason", v)
	}
}

// BACK-04: the doctor tries the machine, names what it finds, and its status
// tells whether sandboxes run.
func TestBACK04_Doctor(t *testing.T) {
	r, out := doctor(t, SharedDir(t))
	if out.Code != 0 || r.Mode == "" {
		t.Errorf("status %d, mode %q\n%s", out.Code, r.Mode, out.Stdout)
	}
	last := r.Checks[len(r.Checks)-1]
	if last.ID != "sandbox" || last.Status != "ok" {
		t.Errorf("the last check is %+v, want a sandbox that ran", last)
	}
	for _, c := range r.Checks {
		if c.Status != "ok" && c.Fix == "" {
			t.Errorf("%s has no cure: %+v", c.ID, c)
		}
	}
}

// hidden runs the binary where no control groups can be used.
func hidden(t *testing.T, dataDir string, args ...string) Out {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to hide the control groups from one process")
	// The words after "sh" are "$@".
	sh := []string{"-m", "sh", "-c", `mount -t tmpfs none /sys/fs/cgroup && exec "$@"`, "sh", Binary(t)}
	return runAs(t, dataDir, "unshare", append(sh, args...)...)
}

// runAs calls program, which is to call the binary.
func runAs(t *testing.T, dataDir, program string, args ...string) Out {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+dataDir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return Out{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// BACK-08: a limit that was asked for and can't be enforced is an error, and
// nothing runs; a default that can't be is named.
func TestBACK08(t *testing.T) {
	run := hidden
	if r, _ := doctor(t, SharedDir(t)); slices.Contains(r.NotEnforced, "memory") {
		run = func(t *testing.T, dataDir string, args ...string) Out { return Run(t, dataDir, "", args...) }
	}
	for _, limit := range [][]string{{"--memory", "200m"}, {"--cpus", "0.5"}} {
		out := run(t, SharedDir(t), append(append([]string{"run"}, limit...), Image, "--", "echo", "it ran")...)
		if out.Code != 125 || out.Stdout != "" || !strings.Contains(out.Stderr, "can't be enforced") {
			t.Errorf("%v: status %d, stdout %q, stderr %q; want a refusal", limit, out.Code, out.Stdout, out.Stderr)
		}
	}
	out := run(t, SharedDir(t), "run", "--json", Image, "--", "echo", "it ran")
	var v Verdict
	if err := json.Unmarshal([]byte(out.Stdout), &v); err != nil || v.ExitCode != 0 || v.Stdout != "it ran\n" {
		t.Fatalf("with defaults: status %d, %v\n%s\n%s", out.Code, err, out.Stdout, out.Stderr)
	}
	if !slices.Equal(v.NotEnforced, []string{"memory", "cpus"}) {
		t.Errorf("not_enforced = %v, want memory and cpus", v.NotEnforced)
	}
	// What gVisor itself counts holds in every mode.
	out = run(t, SharedDir(t), "run", "--pids", "50", Image, "--", "sh", "-c", "(for i in $(seq 100); do sleep 600 & done); echo survived")
	if out.Stdout != "survived\n" || !strings.Contains(out.Stderr, "fork") {
		t.Errorf("100 processes with --pids 50: status %d, stdout %q, stderr %q", out.Code, out.Stdout, out.Stderr)
	}
}

// noexecDir is a data directory from which no program can be started.
func noexecDir(t *testing.T) string {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to mount a file system")
	dir, err := os.MkdirTemp("", "ab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "noexec,size=1g", "none", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	if err := os.Symlink(filepath.Join(SharedDir(t), "images"), filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// B045 again: where no sandbox can be set up, that is an error with its cause, never
// a success that ran nothing and never a command that ran without a sandbox.
func TestB045_Host(t *testing.T) {
	refused := func(t *testing.T, out Out) {
		t.Helper()
		if out.Code != 125 || out.Stdout != "" || strings.TrimSpace(out.Stderr) == "" {
			t.Errorf("status %d, stdout %q, stderr %q; want 125 and the cause", out.Code, out.Stdout, out.Stderr)
		}
	}
	t.Run("noexec data directory", func(t *testing.T) {
		dir := noexecDir(t)
		refused(t, Run(t, dir, "", "run", Image, "--", "echo", "it ran"))
		r, out := doctor(t, dir)
		if out.Code != 1 || !slices.ContainsFunc(r.Checks, func(c struct{ ID, Status, Detail, Fix string }) bool {
			return c.ID == "data_dir" && c.Status == "fail" && strings.Contains(c.Detail, "noexec")
		}) {
			t.Errorf("doctor: status %d, %+v", out.Code, r.Checks)
		}
	})
	t.Run("no user namespaces", func(t *testing.T) {
		Need(t, os.Geteuid() == 0, "root, to forbid namespaces to one process")
		// The limit of a user namespace of its own binds only what runs in it.
		sh := `echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"`
		dir := DataDir(t)
		refused(t, runAs(t, dir, "unshare", "-Urm", "sh", "-c", sh, "sh", Binary(t), "run", Image, "--", "echo", "it ran"))
		out := runAs(t, dir, "unshare", "-Urm", "sh", "-c", sh, "sh", Binary(t), "doctor")
		if out.Code != 1 || !strings.Contains(out.Stdout, "user namespaces") || !strings.Contains(out.Stdout, "user.max_user_namespaces") {
			t.Errorf("doctor: status %d\n%s\n%s", out.Code, out.Stdout, out.Stderr)
		}
	})
}
