package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// zombies is a shell line that prints how many there are.
const zombies = `cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; true`

// TestB057: orphans are reaped.
func TestB057(t *testing.T) {
	t.Parallel()
	NewBox(t, sandbox.Limits{}).Want("0\n", "for i in $(seq 50); do (sleep 0.1 &) ; done; sleep 1; "+zombies)
}

// TestB059: so are those that left their session.
func TestB059(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	const line = "setsid sh -c 'sleep 0.2 & exec sleep 1'"
	p, err := box.Start(t.Context(), sandbox.Command{Shell: line, Background: true}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	box.Exec(sandbox.Command{Shell: line, TTY: true}, nil)
	limit := time.Now().Add(20*time.Second + Slack()) // the orphans end after their parents
	for box.Count("sleep") > 0 || string(box.Sh(zombies).Stdout) != "0\n" {
		if time.Now().After(limit) {
			t.Fatalf("%d orphans run, and %s are zombies", box.Count("sleep"), box.Sh(zombies).Stdout)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestB060: a fork bomb stays in its sandbox and goes with its command.
func TestB060(t *testing.T) {
	t.Parallel()
	a, b := NewBox(t, sandbox.Limits{}), NewBox(t, sandbox.Limits{})
	before := len(SandboxPids(t, a.ID))
	var bomb *sandbox.Result
	slowest, err := meanwhile(b, func() {
		bomb = a.Exec(sandbox.Command{Shell: "bash -c ':(){ :|:& };:'; sleep 5", Timeout: 5 * time.Second}, nil)
	})
	if err != nil {
		t.Errorf("the other sandbox: %v", err)
	}
	if slowest > 2*time.Second+Slack() {
		t.Errorf("the other sandbox took %v to answer", slowest)
	}
	if bomb.Outcome != sandbox.TimedOut {
		t.Errorf("the bomb: got %s, want timed_out", Describe(bomb))
	}
	a.Want("back\n", "echo back")
	// What was killed ends, on the host and in the sandbox, within this time.
	deadline := time.Now().Add(10*time.Second + Slack())
	for {
		after := len(SandboxPids(t, a.ID))
		if after <= before {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%d processes of the sandbox on the host, %d before", after, before)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for {
		r := a.Exec(sandbox.Command{Shell: "ls -d /proc/[0-9]* 2>/dev/null | wc -l"}, nil)
		if n, err := strconv.Atoi(strings.TrimSpace(string(r.Stdout))); err == nil && n < 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("the sandbox sees %s", Describe(r))
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestB062: programs see the processors that they may use, and too big a pool
// ends with its reason.
func TestB062(t *testing.T) {
	t.Parallel()
	const count = "nproc; python3 -c 'import os;print(os.cpu_count(),len(os.sched_getaffinity(0)))'"
	box := NewBox(t, sandbox.Limits{CPUs: 1, Memory: 512 * sandbox.MiB})
	box.Want("1\n1 1\n", count)
	if max, err := os.ReadFile("/sys/devices/system/cpu/possible"); err == nil && strings.TrimSpace(string(max)) != "0" {
		NewBox(t, sandbox.Limits{CPUs: 1.5}).Want("2\n2 2\n", count)
	}

	const pool = `python3 -c '
import multiprocessing, time
def work(i):
    b = bytearray(50 << 20)
    for j in range(0, len(b), 4096): b[j] = 1
    time.sleep(5)
    return len(b)
with multiprocessing.Pool(64) as p: print(sum(p.map(work, range(64), 1)))'`
	began := time.Now()
	res := box.Exec(sandbox.Command{Shell: pool, Timeout: 30 * time.Second}, nil)
	if res.ShellCode() == 0 {
		t.Errorf("3.2 GB fit into 512 MiB: %s", Describe(res))
	}
	if res.Outcome == sandbox.OOM {
		Within(t, began, 35*time.Second)
		if !strings.Contains(res.Reason, "memory") {
			t.Errorf("the reason does not name memory: %s", Describe(res))
		}
	}
	// The sandbox has recovered, or says why it is no more.
	after, err := box.Try(sandbox.Command{Shell: "echo back"}, nil, client.Output{})
	if !sandboxLost(after, err) && (err != nil || string(after.Stdout) != "back\n") {
		t.Errorf("afterwards: %v, %+v; want back, or an error that names memory", err, after)
	}
	t.Logf("the pool: %s; afterwards: %v", Describe(res), err)
}
