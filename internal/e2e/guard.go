package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// Job is a command that runs in a box while the test does other things.
type Job struct {
	t    testing.TB
	done chan struct{}
	res  *sandbox.Result
	err  error
	// Ended is when the result came.
	Ended time.Time
}

// Go starts a command. Its output goes to out, or into the result if out is
// nil. Without a timeout of its own it has one of two minutes.
func (b *Box) Go(cmd sandbox.Command, out io.Writer) *Job {
	j := &Job{t: b.t, done: make(chan struct{})}
	go func() {
		defer close(j.done)
		to := client.Output{}
		if out != nil {
			to = client.Output{Stdout: out, Stderr: out}
		}
		j.res, j.err = b.Try(cmd, nil, to)
		j.Ended = time.Now()
	}()
	return j
}

// Running reports whether the command has not ended yet.
func (j *Job) Running() bool {
	select {
	case <-j.done:
		return false
	default:
		return true
	}
}

// Result waits for the command's end.
func (j *Job) Result() *sandbox.Result {
	j.t.Helper()
	<-j.done
	if j.err != nil {
		j.t.Fatalf("wait for a command: %v", j.err)
	}
	return j.res
}

// answerLimit is how long an agent may take to run a command while user code
// burns everything, on a machine that is not busy itself.
const answerLimit = 5 * time.Second

// Answers asks the agent for a sign of life and runs a small command in the box.
func (b *Box) Answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit+Slack())
	defer cancel()
	if _, err := b.Session().Ping(ctx); err != nil {
		return err
	}
	p, err := b.Start(ctx, sandbox.Command{Argv: []string{"/bin/true"}, User: "root"}, client.Output{})
	if err != nil {
		return err
	}
	r, err := p.Wait(ctx)
	switch {
	case err != nil:
		return err
	case r.ShellCode() != 0:
		return errors.New(Describe(r))
	}
	return nil
}

// KeepsAnswering calls [Box.Answers] again and again until the returned
// function is called, which fails the test if a call failed.
func (b *Box) KeepsAnswering(who string) (stop func()) { return b.keeps(who, b.Answers) }

// KeepsAlive is KeepsAnswering without a command, for boxes in which nothing
// can be started.
func (b *Box) KeepsAlive(who string) (stop func()) {
	return b.keeps(who, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit+Slack())
		defer cancel()
		_, err := b.Session().Ping(ctx)
		return err
	})
}

func (b *Box) keeps(who string, ask func() error) (stop func()) {
	quit := make(chan struct{})
	n, slowest, failure := 0, time.Duration(0), error(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			began := time.Now()
			if failure = ask(); failure != nil {
				return
			}
			n, slowest = n+1, max(slowest, time.Since(began))
			select {
			case <-quit:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() {
		b.t.Helper()
		close(quit)
		wg.Wait()
		if failure != nil {
			b.t.Errorf("%s stopped answering after %d answers: %v", who, n, failure)
			return
		}
		b.t.Logf("%s answered %d times, in %v at most", who, n, slowest.Round(time.Millisecond))
	}
}

// Neighbour makes another sandbox with a counter in it and returns the check
// that neither was disturbed since.
func Neighbour(t testing.TB) (check func()) {
	t.Helper()
	b := NewBox(t, sandbox.Limits{Memory: 128 * sandbox.MiB})
	var w Lines
	// Longer than any test lasts.
	forever := sandbox.Command{Shell: "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done", Timeout: time.Hour}
	j := b.Go(forever, &w)
	stop := b.KeepsAnswering("the neighbour")
	return func() {
		t.Helper()
		stop()
		if !j.Running() {
			t.Errorf("the neighbour's counter ended: %v %v", j.res, j.err)
		}
		lines, _ := w.Get()
		w.WaitFor(t, strconv.Itoa(len(lines)+2), answerLimit) // it goes on
		lines, _ = w.Get()
		for i, l := range lines {
			if l != strconv.Itoa(i+1) {
				t.Errorf("the neighbour's count %d is %q", i+1, l)
				break
			}
		}
	}
}

// Lines collects the output of a command that still runs.
type Lines struct {
	mu   sync.Mutex
	text strings.Builder
	last time.Time
}

func (w *Lines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	return w.text.Write(b)
}

// Get returns the complete lines so far, and when something came last.
func (w *Lines) Get() ([]string, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Split(w.text.String(), "\n")
	return all[:len(all)-1], w.last
}

// WaitFor waits until a line is text.
func (w *Lines) WaitFor(t testing.TB, text string, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit + Slack()); ; time.Sleep(20 * time.Millisecond) {
		lines, _ := w.Get()
		for _, l := range lines {
			if l == text {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no line %q after %v: %q", text, limit, lines)
		}
	}
}

// CgroupPids are the processes in a sandbox's control groups on the host.
func CgroupPids(id string) []int {
	seen := map[int]bool{}
	var out []int
	for _, dir := range cgroupDirs(id) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone meanwhile
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid != os.Getpid() && !seen[pid] {
				seen[pid] = true
				out = append(out, pid)
			}
		}
	}
	return out
}

// ProcStatus reads the fields of a host process's status file.
func ProcStatus(t testing.TB, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}
