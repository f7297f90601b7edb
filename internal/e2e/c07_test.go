package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// long runs commands of more than a minute, all at once: each test that needs
// one waits for its own.
var long struct {
	once sync.Once
	box  *Box
	wg   map[string]*sync.WaitGroup
	mu   sync.Mutex
	errs map[string][]error
}

// longRuns starts what the tests named wait for, once: also what needs idle time
// only, so that all of it together takes as long as the longest.
func longRuns(t *testing.T) {
	t.Helper()
	box, far, dir, bin := Shared(t), SharedRemote(t).remote, SharedDir(t), Binary(t)
	long.once.Do(func() {
		long.box = box
		long.wg = map[string]*sync.WaitGroup{}
		for _, id := range []string{"B048", "B050", "B056", "B076", "B168", "B170", "B173"} {
			long.wg[id] = &sync.WaitGroup{}
		}
		long.errs = map[string][]error{}
		every := func(id string, seconds, limit int) {
			cmd := sandbox.Command{Shell: fmt.Sprintf("sleep %d; echo ok", seconds), Timeout: time.Duration(limit) * time.Second}
			start(id, "waiting", func() (string, error) { return longExec(cmd, false) })
			start(id, "streaming", func() (string, error) { return longExec(cmd, true) })
			cmd.TTY = true
			start(id, "terminal", func() (string, error) { return longExec(cmd, true) })
			for _, flags := range [][]string{{}, {"--json"}, {"--output-dir", dir + "/out-" + id}} {
				start(id, fmt.Sprint("run ", flags), func() (string, error) {
					defer os.RemoveAll(dir + "/out-" + id)
					args := append([]string{"--data-dir", dir, "run", "--timeout", strconv.Itoa(limit) + "s"}, flags...)
					out, err := exec.Command(bin, append(args, Image, "--", "sh", "-c", cmd.Shell)...).Output()
					return string(out), err
				})
			}
		}
		every("B048", 75, 120)
		every("B050", 35, 45)
		start("B056", "background", background)
		longRemotes(far)
	})
}

// start runs f, which must print ok.
func start(id, door string, f func() (string, error)) {
	long.wg[id].Go(func() {
		out, err := f()
		if err == nil && !strings.Contains(out, "ok") {
			err = fmt.Errorf("no ok in %q", out)
		}
		if err != nil {
			long.mu.Lock()
			defer long.mu.Unlock()
			long.errs[id] = append(long.errs[id], fmt.Errorf("%s: %w", door, err))
		}
	})
}

func longExec(cmd sandbox.Command, stream bool) (string, error) {
	var out client.Output
	var buf bytes.Buffer
	if stream {
		out, cmd.MaxOutput = client.Output{Stdout: &buf, Stderr: &buf}, -1
	}
	res, err := long.box.Try(cmd, nil, out)
	if err != nil {
		return "", err
	}
	if res.ShellCode() != 0 {
		return "", errors.New(Describe(res))
	}
	return buf.String() + string(res.Stdout), nil
}

// background starts a command that has no client and no time limit, and looks
// for what it left.
func background() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := sandbox.Command{Shell: "sleep 70; echo fin ok > /workspace/fin", Background: true, Timeout: -1}
	p, err := long.box.Start(ctx, cmd, client.Output{})
	if err != nil {
		return "", err
	}
	if err := p.Detach(); err != nil {
		return "", err
	}
	return awaited(func() (string, error) { return longExec(sandbox.Command{Shell: "cat /workspace/fin"}, false) })
}

// awaited is what look finds of a command of 70 s, once it finds something.
func awaited(look func() (string, error)) (string, error) {
	for limit := time.Now().Add(90*time.Second + Slack()); ; time.Sleep(time.Second) {
		out, err := look()
		if err == nil && out != "" || time.Now().After(limit) {
			return out, err
		}
	}
}

func longResult(t *testing.T, id string) {
	t.Helper()
	t.Parallel()
	longRuns(t)
	long.wg[id].Wait()
	for _, err := range long.errs[id] {
		t.Error(err)
	}
}

// TestB048: no hidden minute bounds a command, at any door.
func TestB048(t *testing.T) { longResult(t, "B048") }

// TestB050: no variant has a limit of its own.
func TestB050(t *testing.T) { longResult(t, "B050") }

// TestB056: a background command outlives its starter and every default.
func TestB056(t *testing.T) { longResult(t, "B056") }

// TestB052: a time-out is a result with the output so far; the next command
// works.
func TestB052(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		began := time.Now()
		res := box.Exec(sandbox.Command{Shell: "echo part; sleep 30", Timeout: 2 * time.Second}, nil)
		Within(t, began, 4*time.Second)
		if res.Outcome != sandbox.TimedOut || string(res.Stdout) != "part\n" || res.Duration < 2*time.Second {
			t.Errorf("got %s, want timed_out after 2 s with the output so far", Describe(res))
		}
		box.Want("next\n", "echo next")
	})

	v := RunJSON(t, []string{"--timeout", "2s"}, "sh", "-c", "echo part; sleep 30")
	if !v.TimedOut || v.Stdout != "part\n" || v.ExitCode != 124 {
		t.Errorf("run --json: %+v", v)
	}
	out := Run(t, SharedDir(t), "", "run", "--timeout", "2s", Image, "--", "sh", "-c", "echo part; sleep 30")
	if out.Code != 124 || out.Stdout != "part\n" || !strings.Contains(out.Stderr, "--timeout") {
		t.Errorf("run: %+v, want 124, the output so far and the reason", out)
	}
}
