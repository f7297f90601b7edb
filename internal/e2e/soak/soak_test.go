package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/e2e"
	"agentbox/internal/e2e/oracle"
	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
	"agentbox/internal/wire"
)

// settle is how long what was told to end may take until it is gone.
const settle = 20 * time.Second

// cli is one call of the binary.
type cli struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	began          time.Time
	done           chan struct{}
}

// start calls agentbox run in p; argv is the command in the sandbox.
func start(t testing.TB, p oracle.Place, argv ...string) *cli {
	t.Helper()
	c := &cli{began: time.Now(), done: make(chan struct{})}
	c.cmd = exec.Command(e2e.Binary(t), append([]string{"run", e2e.Image, "--"}, argv...)...)
	c.cmd.Env = p.Env()
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	// What inherits the pipes of a killed process must not hold up the test.
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // the state says it
	}()
	return c
}

// wait returns the exit status, -1 if a signal ended the process.
func (c *cli) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(2 * time.Minute):
		t.Errorf("%q did not end", c.cmd.Args)
		_ = c.cmd.Process.Kill()
		<-c.done
	}
	return c.cmd.ProcessState.ExitCode()
}

// place is a data directory in which one sandbox has run.
func place(t *testing.T) oracle.Place {
	t.Helper()
	p := oracle.NewPlace(t, e2e.SharedDir(t))
	echo(t, p)
	return p
}

// echo runs a sandbox that must do its work; it also sweeps what dead processes
// left. It returns how long that took.
func echo(t testing.TB, p oracle.Place) time.Duration {
	t.Helper()
	word := strconv.Itoa(rand.IntN(1e9))
	c := start(t, p, "sh", "-c", "echo "+word+"; sleep 0.05 & echo $(id -u); wait; exit 3")
	code := c.wait(t)
	if code != 3 || c.stdout.String() != word+"\n1000\n" {
		t.Errorf("status %d, output %q, %q", code, c.stdout.String(), c.stderr.String())
	}
	return time.Since(c.began)
}

// seeded is a source of random numbers that can be had again.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("AGENTBOX_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("AGENTBOX_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestCycles creates, uses and destroys sandboxes, two at a time; a tenth of the
// processes is killed at a random moment of its life.
func TestCycles(t *testing.T) {
	p := place(t)
	random := seeded(t)
	life := (echo(t, p) + echo(t, p)) / 2
	before := oracle.Take(t, p)
	const batch = 50
	n := e2e.Sized(100, 500)
	killed := 0
	for done := 0; done < n; done += batch {
		var moments [batch]time.Duration // when to kill; 0: not
		for _, i := range random.Perm(batch)[:batch/10] {
			moments[i] = time.Duration(random.Int64N(int64(life*3/2)) + 1)
			killed++
		}
		parallel(2, batch, func(i int) {
			if moments[i] == 0 {
				echo(t, p)
				return
			}
			c := start(t, p, "sh", "-c", "sleep 1000 & wait")
			time.Sleep(moments[i])
			_ = c.cmd.Process.Kill()
			c.wait(t)
		})
		echo(t, p)
		before.Check(t, settle)
		if t.Failed() {
			t.Fatalf("after %d cycles", done+batch)
		}
		t.Logf("%d cycles, %d killed, nothing left", done+batch, killed)
	}
}

// parallel calls f with 0 … n-1, width at once.
func parallel(width, n int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range width {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// TestCyclesOfOneProcess does the same without kills in one process, which
// must not keep anything either.
func TestCyclesOfOneProcess(t *testing.T) {
	p := place(t)
	images, err := wire.Images(p.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	cycle := func(e *local.Engine) {
		sb, err := e.Create(ctx, local.Request{Image: e2e.Image, Limits: sandbox.Limits{}.WithDefaults()})
		if err != nil {
			t.Error(err)
			return
		}
		proc, err := sb.Start(ctx, sandbox.Command{Argv: []string{"echo", "hi"}}, client.Output{})
		var res *sandbox.Result
		if err == nil {
			res, err = sb.Wait(ctx, proc)
		}
		if err != nil || string(res.Stdout) != "hi\n" {
			t.Errorf("got %+v, %v", res, err)
		}
		if err := sb.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	var before *oracle.Snapshot
	engine, err := local.Open(ctx, p.DataDir, images, wire.Backend(e2e.SharedDir(t)), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	cycle(engine)
	before = oracle.Take(t, p)
	parallel(2, e2e.Sized(20, 100), func(int) { cycle(engine) })
	before.Check(t, settle)
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// TestChaos kills what takes part in a sandbox's life, under load: each time the
// verdict is the right one, and nothing stays.
func TestChaos(t *testing.T) {
	p := place(t)
	random := seeded(t)
	before := oracle.Take(t, p)
	const load = "for i in 1 2 3; do (while :; do :; done) & done; while :; do echo x; dd if=/dev/zero of=/tmp/x bs=64k count=16 2>/dev/null; done"
	victims := []struct {
		name string
		is   func(pr oracle.Process, cli int) bool
		// codes that the CLI may end with; none: any but 0.
		codes []int
	}{
		{"the command line", func(pr oracle.Process, cli int) bool { return pr.Pid == cli }, []int{-1}},
		// Not a copy of the command line, which Go's library makes to see what the kernel
		// can do: that one ends by itself, and the sandbox lives.
		{"the sandbox", func(pr oracle.Process, cli int) bool {
			return pr.Parent == cli && !strings.HasPrefix(pr.Cmdline, e2e.Binary(t))
		}, []int{125}},
		// A process of the engine's that runs user code: the user's process dies or
		// can't be started, or the engine gives up.
		{"a process below the sandbox", func(pr oracle.Process, cli int) bool { return pr.Pid != cli && pr.Parent != cli }, nil},
	}
	for round := range e2e.Sized(4, 40) {
		for _, v := range victims {
			c := start(t, p, "sh", "-c", load)
			moment := time.Duration(random.Int64N(int64(2 * time.Second)))
			pid := 0
			// Kills what is there at the moment, or the first that comes.
			for pid == 0 && time.Since(c.began) < time.Minute {
				if time.Since(c.began) < moment {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				pid = pick(t, random, p, func(pr oracle.Process) bool { return v.is(pr, c.cmd.Process.Pid) })
			}
			if pid == 0 {
				t.Errorf("%s never came", v.name)
			} else if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Error(err)
			}
			verdict(t, c, v.name, v.codes)
			echo(t, p)
			before.Check(t, settle)
			if t.Failed() {
				t.Fatalf("round %d: killed %s (pid %d) after %v", round, v.name, pid, moment)
			}
		}
	}
}

// verdict waits for the end of a call whose part was killed.
func verdict(t *testing.T, c *cli, victim string, codes []int) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		if victim == "a process below the sandbox" {
			// The user's other processes run on: that is right, too.
			_ = c.cmd.Process.Signal(unix.SIGTERM)
			c.wait(t)
			return
		}
	}
	code := c.wait(t)
	ok := codes == nil && code != 0
	for _, want := range codes {
		ok = ok || code == want
	}
	if !ok {
		t.Errorf("%s was killed: status %d, want one of %v; %s", victim, code, codes, tail(c.stderr.String()))
	}
	if code == 125 && !strings.Contains(c.stderr.String(), "agentbox: ") {
		t.Errorf("%s was killed, and no reason was given: %q", victim, tail(c.stderr.String()))
	}
}

func tail(s string) string { return s[max(0, len(s)-500):] }

// pick returns one of the processes that fit, 0 if there is none.
func pick(t *testing.T, random *rand.Rand, p oracle.Place, fits func(oracle.Process) bool) int {
	t.Helper()
	all, err := oracle.Processes(p)
	if err != nil {
		t.Fatal(err)
	}
	var fit []int
	for _, pr := range all {
		if fits(pr) {
			fit = append(fit, pr.Pid)
		}
	}
	if len(fit) == 0 {
		return 0
	}
	return fit[random.IntN(len(fit))]
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := e2e.CloseEngine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
