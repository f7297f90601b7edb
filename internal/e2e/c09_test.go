package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// hog takes 600 MB of memory and uses it.
const hog = `python3 -c 'b=bytearray(600*1024*1024);print(len(b))'`

// outOfMemory reports whether the result is one of those that hog may have in
// 256 MiB: the verdict with its reason, or Python's own error.
func outOfMemory(r *sandbox.Result) bool {
	if r.Outcome == sandbox.OOM {
		return r.ShellCode() == 137 && strings.Contains(r.Reason, "memory")
	}
	return r.Outcome == sandbox.Exited && r.ExitCode == 1 && strings.Contains(string(r.Stderr), "MemoryError")
}

// sandboxLost reports whether a command ended with its sandbox, for lack of
// memory.
func sandboxLost(r *sandbox.Result, err error) bool {
	if err != nil {
		return strings.Contains(err.Error(), "oom") || strings.Contains(err.Error(), "memory")
	}
	return r.Outcome == sandbox.OOM && strings.Contains(r.Reason, "memory")
}

// TestB064: a program that wants too much has the verdict, and what becomes of
// its sandbox is told.
func TestB064(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{Memory: 256 * sandbox.MiB})
	if err := box.Session().WriteFile(t.Context(), "/workspace/keep", strings.NewReader("k"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	res := box.Exec(sandbox.Command{Shell: hog}, nil)
	if !outOfMemory(res) {
		t.Errorf("got %s, want oom or MemoryError", Describe(res))
	}
	after, err := box.Try(sandbox.Command{Shell: "cat /workspace/keep"}, nil, client.Output{})
	if !sandboxLost(after, err) && (err != nil || string(after.Stdout) != "k") {
		t.Errorf("afterwards: %v, %+v; want the file, or an error that names memory", err, after)
	}
	t.Logf("the hog: %s; afterwards: %v", Describe(res), err)
}

// TestB066: a file that did not fit is never reported as written.
func TestB066(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{Memory: 128 * sandbox.MiB})
	res := box.Sh("dd if=/dev/zero of=/dev/shm/f bs=100M count=3")
	full := res.Outcome == sandbox.Exited && res.ExitCode != 0 && regexp.MustCompile("No space|memory").Match(res.Stderr)
	if !full && res.Outcome != sandbox.OOM {
		t.Errorf("got %s, want no space or oom", Describe(res))
	}
	if after, err := box.Try(sandbox.Command{Shell: "stat -c %s /dev/shm/f"}, nil, client.Output{}); err == nil && strings.TrimSpace(string(after.Stdout)) == "314572800" {
		t.Error("300 MiB are in 64 MiB of /dev/shm")
	}
	t.Log(Describe(res))
}

// TestB068: a neighbour of the hog goes on, or says what happened to it.
func TestB068(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{Memory: 256 * sandbox.MiB})
	type ended struct {
		res *sandbox.Result
		err error
	}
	fine := make(chan ended)
	go func() {
		res, err := box.Try(sandbox.Command{Shell: "sleep 8; echo fine"}, nil, client.Output{})
		fine <- ended{res, err}
	}()
	res, err := box.Try(sandbox.Command{Shell: hog}, nil, client.Output{})
	if err != nil || !outOfMemory(res) {
		t.Errorf("the hog: %v, %+v", err, res)
	}
	n := <-fine
	if !sandboxLost(n.res, n.err) && (n.err != nil || string(n.res.Stdout) != "fine\n") {
		t.Errorf("the neighbour: %v, %+v; want fine, or an error that names memory", n.err, n.res)
	}
	began := time.Now()
	back, err := box.Try(sandbox.Command{Shell: "echo back"}, nil, client.Output{})
	Within(t, began, 10*time.Second)
	if !sandboxLost(back, err) && (err != nil || string(back.Stdout) != "back\n") {
		t.Errorf("afterwards: %v, %+v; want back, or an error that names memory", err, back)
	}
}

// TestB069: out of memory is the same at each door.
func TestB069(t *testing.T) {
	t.Parallel()
	const memory = 256 * sandbox.MiB
	for name, run := range map[string]func(*Box) *sandbox.Result{
		"waiting":   func(b *Box) *sandbox.Result { return b.Exec(sandbox.Command{Shell: hog}, nil) },
		"streaming": func(b *Box) *sandbox.Result { return b.Stream(sandbox.Command{Shell: hog}, nil) },
	} {
		if res := run(NewBox(t, sandbox.Limits{Memory: memory})); res.Outcome != sandbox.OOM || !outOfMemory(res) {
			t.Errorf("%s: got %s, want oom, 137 and a reason", name, Describe(res))
		}
	}
	v := RunJSON(t, []string{"--memory", "256m"}, "sh", "-c", hog)
	if v.ExitCode != 137 || !v.OOMKilled || v.Outcome != "oom" || !strings.Contains(v.Reason, "memory") || v.TimedOut {
		t.Errorf("run --json: %+v, want 137, oom_killed and the reason", v)
	}
}

// TestB071_Words: nobody has to read the host's kernel log to learn the cause.
func TestB071_Words(t *testing.T) {
	t.Parallel()
	out := Run(t, SharedDir(t), "", "run", "--memory", "256m", Image, "--", "sh", "-c", hog)
	if out.Code != 137 || !strings.Contains(out.Stderr, "memory limit") || !strings.Contains(out.Stderr, "256m") {
		t.Errorf("run: %+v, want 137 and the limit that was reached", out)
	}
}
