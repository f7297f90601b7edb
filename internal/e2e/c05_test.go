package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// outputMemory is what probeOutputMemory and probeOutputCap report.
type outputMemory struct {
	Growth  int64 // of the host's memory at its highest, in bytes
	Results []outputResult
	Slowest time.Duration // answer to another request meanwhile
	Slack   time.Duration // of that machine at that time
}

type outputResult struct {
	Outcome   string
	Code, Len int
	Truncated bool
}

func outputOf(r *sandbox.Result) outputResult {
	return outputResult{r.Outcome.String(), r.ShellCode(), len(r.Stdout), r.StdoutTruncated}
}

// meanwhile runs busy and asks the box for the output of echo all along; it
// returns the slowest answer.
func meanwhile(box *Box, busy func()) (slowest time.Duration, err error) {
	done := make(chan struct{})
	go func() { defer close(done); busy() }()
	for {
		began := time.Now()
		res, e := box.Try(sandbox.Command{Shell: "echo ok"}, nil, client.Output{})
		if e == nil && string(res.Stdout) != "ok\n" {
			e = errors.New(Describe(res))
		}
		err = errors.Join(err, e)
		slowest = max(slowest, time.Since(began))
		select {
		case <-done:
			return slowest, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func probeOutputMemory(e *local.Engine) (any, error) {
	box, err := probeBox(e)
	if err != nil {
		return nil, err
	}
	other, err := probeBox(e)
	if err != nil {
		return nil, err
	}
	var report outputMemory
	var mu sync.Mutex
	var errs error
	run := func(cmd sandbox.Command) {
		res, err := box.Try(cmd, nil, client.Output{})
		mu.Lock()
		defer mu.Unlock()
		if errs = errors.Join(errs, err); err == nil {
			report.Results = append(report.Results, outputOf(res))
		}
	}
	before := status("VmHWM")
	report.Slowest, err = meanwhile(other, func() {
		parallel(5, 5, func() { run(sandbox.Command{Argv: []string{"yes"}, Timeout: 5 * time.Second}) })
		run(sandbox.Command{Shell: "head -c 300000000 /dev/zero", Timeout: 2 * time.Minute})
	})
	report.Growth, report.Slack = status("VmHWM")-before, Slack()
	return report, errors.Join(err, errs)
}

// TestB030: endless output is bounded in the host's memory too. The pipe is
// slow on a busy machine: 3 GB would take minutes, 300 MB are 30 times the cap.
func TestB030(t *testing.T) {
	t.Parallel()
	const limit = sandbox.DefaultMaxOutput
	r := probe[outputMemory](t, "output-memory")
	if most := int64(5*limit) + 64*sandbox.MiB; r.Growth >= most {
		t.Errorf("the host's memory grew by %d bytes, want less than %d", r.Growth, most)
	}
	if len(r.Results) != 6 {
		t.Fatalf("%d results, want 6", len(r.Results))
	}
	for i, res := range r.Results {
		want := outputResult{"timed_out", 124, limit, true}
		if i == 5 {
			want = outputResult{"exited", 0, limit, true}
		}
		if i < 5 && res.Len < limit { // a busy machine: five seconds were not enough for the cap
			want.Len, want.Truncated = res.Len, false
		}
		if res != want {
			t.Errorf("result %d: %+v, want %+v", i, res, want)
		}
	}
	if r.Slowest > time.Second+r.Slack {
		t.Errorf("another request took %v meanwhile", r.Slowest)
	}
	t.Logf("memory grew by %d bytes, slowest other request %v", r.Growth, r.Slowest)
}

func probeOutputCap(e *local.Engine) (any, error) {
	box, err := probeBox(e)
	if err != nil {
		return nil, err
	}
	cmd := sandbox.Command{Shell: "head -c 200000000 /dev/zero", MaxOutput: sandbox.MiB}
	var report outputMemory
	stop, sampled := make(chan struct{}), make(chan int64)
	before := status("VmRSS")
	go func() {
		highest := int64(0)
		for {
			highest = max(highest, status("VmRSS"))
			select {
			case <-stop:
				sampled <- highest
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	res, err := box.Try(cmd, nil, client.Output{})
	close(stop)
	report.Growth = <-sampled - before
	if err == nil {
		report.Results = append(report.Results, outputOf(res))
	}
	return report, err
}

// TestB032: the cap works before anything is collected. 200 MB are 200 times
// the cap.
func TestB032(t *testing.T) {
	t.Parallel()
	r := probe[outputMemory](t, "output-cap")
	if want := (outputResult{"exited", 0, 1 << 20, true}); len(r.Results) != 1 || r.Results[0] != want {
		t.Errorf("got %+v, want %+v", r.Results, want)
	}
	if r.Growth >= 32*sandbox.MiB {
		t.Errorf("the host's memory grew by %d bytes, want less than 32 MiB", r.Growth)
	}
	t.Logf("memory grew by %d bytes", r.Growth)
}

// TestB034: output over the cap changes nothing else of the result.
func TestB034(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		res := box.Sh("seq 1 2000000; echo end >&2; exit 7")
		if res.Outcome != sandbox.Exited || res.ExitCode != 7 || !res.StdoutTruncated || res.StderrTruncated ||
			string(res.Stderr) != "end\n" || len(res.Stdout) != sandbox.DefaultMaxOutput || !strings.HasPrefix(string(res.Stdout), "1\n2\n3\n") {
			t.Errorf("got %s, truncated %v, %v", Describe(res), res.StdoutTruncated, res.StderrTruncated)
		}
	})

	v := RunJSON(t, nil, "sh", "-c", "seq 1 2000000; echo end >&2; exit 7")
	if v.ExitCode != 7 || !v.Truncated.Stdout || v.Truncated.Stderr || v.Stderr != "end\n" || v.Outcome != "exited" {
		t.Errorf("run --json: %d %s, truncated %v, stderr %q", v.ExitCode, v.Outcome, v.Truncated, v.Stderr)
	}
}

// stalled is a client that takes the first bytes and then never reads again.
type stalled struct{ release chan struct{} }

func (s stalled) Write(p []byte) (int, error) {
	<-s.release
	return 0, errors.New("released")
}

// stalledReport is what probeStalled reports.
type stalledReport struct {
	Growth        int64
	Running, Left int // commands before and after the clients closed
}

func probeStalled(e *local.Engine) (any, error) {
	box, err := probeBox(e)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	client20 := stalled{make(chan struct{})}
	before := status("VmRSS")
	var all []*client.Process
	for i := range 20 {
		p, err := box.Session().Start(ctx, fmt.Sprintf("stalled-%d", i), sandbox.Command{Argv: []string{"yes"}, MaxOutput: -1}, client.Output{Stdout: client20})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	var r stalledReport
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
		r.Growth = max(r.Growth, status("VmRSS")-before)
	}
	running := func() (n int, err error) {
		execs, err := box.Session().Execs(ctx)
		for _, x := range execs {
			if x.Result.Outcome == sandbox.Running {
				n++
			}
		}
		return n, err
	}
	if r.Running, err = running(); err != nil {
		return nil, err
	}
	for _, p := range all {
		p.Abandon()
	}
	close(client20.release)
	limit := time.Now().Add(sandbox.DisconnectGrace + Slack())
	for {
		r.Left, err = running()
		if err != nil || r.Left == 0 || time.Now().After(limit) {
			return r, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestB036: clients that stall hold nothing in memory, and their commands end
// with them.
func TestB036(t *testing.T) {
	t.Parallel()
	r := probe[stalledReport](t, "stalled")
	if r.Growth >= 64*sandbox.MiB {
		t.Errorf("the host's memory grew by %d bytes, want less than 64 MiB", r.Growth)
	}
	if r.Running != 20 || r.Left != 0 {
		t.Errorf("%d commands with stalled clients, %d after they closed; want 20 and 0", r.Running, r.Left)
	}
	t.Logf("memory grew by %d bytes", r.Growth)
}
