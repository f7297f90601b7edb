package runtimetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

var jobCases = []guestCase{
	{"List", testListJobs},
	{"Names", testJobNames},
	{"Queue", testQueue},
	{"QueuedTimeout", testQueuedTimeout},
	{"KilledWithClient", testKilledWithClient},
	{"KeptWithoutClient", testKeptWithoutClient},
	{"Detach", testDetach},
	{"KillAll", testKillAll},
	{"Many", testMany},
}

func (g *guest) job(id string) client.ExecInfo {
	g.Helper()
	all, err := g.s.Execs(g.ctx)
	g.ok(err)
	for _, i := range all {
		if i.ID == id {
			return i
		}
	}
	g.Fatalf("no %s in %+v", id, all)
	return client.ExecInfo{}
}

func testListJobs(g *guest) {
	before := time.Now()
	p := g.background("echo out; echo problem >&2; sleep 1000")
	g.eventually("it wrote", func() bool { i := g.job(p.ID()); return i.StdoutEnd == 4 && i.StderrEnd == 8 })
	i := g.job(p.ID())
	if i.Pid < 2 || i.User != "user" || i.TTY || !strings.Contains(strings.Join(i.Argv, " "), "sleep 1000") || i.Result.Outcome != sandbox.Running {
		g.Errorf("got %+v", i)
	}
	if i.Started.Before(before.Add(-time.Minute)) || i.Started.After(time.Now().Add(time.Minute)) {
		g.Errorf("it was started at %v", i.Started)
	}
	g.ok(g.s.SignalExec(g.ctx, p.ID(), 15, true))
	r, err := g.s.WaitExec(g.ctx, p.ID(), 0, true)
	g.ok(err)
	if r.Result.Outcome != sandbox.Signaled || r.Result.Signal != 15 || string(r.Result.Stdout) != "out\n" || string(r.Result.Stderr) != "problem\n" {
		g.Errorf("got %+v", r)
	}
	if h, err := g.s.Ping(g.ctx); err != nil || h.Running != 0 || h.Queued != 0 {
		g.Errorf("got %+v, %v", h, err)
	}
}

func testJobNames(g *guest) {
	c := sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true}
	_, err := g.s.Start(g.ctx, "my-job-1", c, client.Output{})
	g.ok(err)
	if _, err := g.s.Start(g.ctx, "my-job-1", c, client.Output{}); !errdefs.IsAlreadyExists(err) {
		g.Errorf("the same name again: %v", err)
	}
	if err := g.s.RemoveExec(g.ctx, "my-job-1"); !errdefs.IsFailedPrecondition(err) {
		g.Errorf("remove a job that runs: %v", err)
	}
	for what, err := range map[string]error{
		"signal": g.s.SignalExec(g.ctx, "my-job", 15, false),
		"remove": g.s.RemoveExec(g.ctx, "my-job"),
		"wait":   second(g.s.WaitExec(g.ctx, "my-job", 0, false)),
	} {
		if !errdefs.IsNotFound(err) {
			g.Errorf("%s a job that is not there: %v", what, err)
		}
	}
	if err := g.s.SignalExec(g.ctx, "my-job-1", 99, false); !errdefs.IsInvalidArgument(err) {
		g.Errorf("signal 99: %v", err)
	}
	g.ok(g.s.SignalExec(g.ctx, "my-job-1", 9, true))
}

func second[T any](_ T, err error) error { return err }

// testQueue runs more than the sandbox takes at once: the rest waits in order,
// and more than that is refused.
func testQueue(g *guest) {
	g.connect(func(c *guestv1.GuestConfig) { c.MaxExecs, c.MaxQueued = 2, 2 })
	start := func(n int) (*client.Process, error) {
		return g.s.Start(g.ctx, fmt.Sprintf("queue-%d", n), sandbox.Command{Shell: "read x; echo " + itoa(n) + " >> /tmp/order", Stdin: true}, client.Output{})
	}
	var ps []*client.Process
	for n := range 4 {
		p, err := start(n)
		g.ok(err)
		ps = append(ps, p)
	}
	if h, err := g.s.Ping(g.ctx); err != nil || h.Running != 2 || h.Queued != 2 {
		g.Errorf("got %+v, %v", h, err)
	}
	if i := g.job("queue-3"); i.Pid != 0 || i.Result.Outcome != sandbox.Running {
		g.Errorf("one that waits is listed as %+v", i)
	}
	if _, err := start(4); !errdefs.IsResourceExhausted(err) {
		g.Errorf("one more than may wait: %v", err)
	}
	g.ok(ps[3].Kill(g.ctx))
	if r := g.result(ps[3]); r.Outcome != sandbox.Canceled {
		g.Errorf("killed while it waited: %+v", r)
	}
	for _, p := range ps[:3] { // the third only runs when the first has ended
		g.ok(p.Stdin().Close())
		if r := g.result(p); r.Outcome != sandbox.Exited {
			g.Errorf("got %+v", r)
		}
	}
	if got := g.sh("cat /tmp/order"); got != "0\n1\n2\n" {
		g.Errorf("they ran in the order %q", got)
	}
}

// testQueuedTimeout counts the wait against the time limit.
func testQueuedTimeout(g *guest) {
	g.connect(func(c *guestv1.GuestConfig) { c.MaxExecs = 1 })
	p := g.background("sleep 1000")
	start := time.Now()
	r := g.do(sandbox.Command{Argv: []string{"true"}, Timeout: 300 * time.Millisecond})
	g.within(start, 300*time.Millisecond)
	if r.Outcome != sandbox.TimedOut {
		g.Errorf("got %+v", r)
	}
	g.ok(p.Kill(g.ctx))
}

func testKilledWithClient(g *guest) {
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Argv: []string{"sleep", "1000"}}, client.Output{})
	g.ok(err)
	q, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Argv: []string{"sleep", "1000"}}, client.Output{})
	g.ok(err)
	start := time.Now()
	// The client of a command goes, its host stays.
	g.leave(p)
	// One whose client comes back in time lives on.
	g.leave(q)
	back, err := g.s.Attach(g.ctx, q.ID(), 0, 0, client.Output{})
	g.ok(err)
	i, err := g.s.WaitExec(g.ctx, p.ID(), 0, false)
	g.ok(err)
	g.within(start, sandbox.DisconnectGrace)
	if i.Result.Outcome != sandbox.Canceled || time.Since(start) < sandbox.DisconnectGrace/2 {
		g.Errorf("without its client: %+v after %v", i.Result, time.Since(start))
	}
	if i := g.job(q.ID()); i.Result.Outcome != sandbox.Running {
		g.Errorf("its client came back, and it is %v", i.Result.Outcome)
	}
	g.ok(back.Kill(g.ctx))
}

// leave ends a client the hard way: in the middle, without a word.
func (g *guest) leave(p *client.Process) {
	ctx, cancel := context.WithTimeout(g.ctx, time.Millisecond)
	defer cancel()
	_, err := p.Wait(ctx)
	if !canceled(err) {
		g.Errorf("it ended: %v", err)
	}
	p.Abandon()
}

// testKeptWithoutClient: the death of the host is no disconnect.
func testKeptWithoutClient(g *guest) {
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Argv: []string{"sleep", "1000"}}, client.Output{})
	g.ok(err)
	q, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Argv: []string{"sleep", "1000"}, OnDisconnect: sandbox.Keep}, client.Output{})
	g.ok(err)
	g.leave(q)
	g.connect()
	time.Sleep(sandbox.DisconnectGrace + time.Second)
	for _, id := range []string{p.ID(), q.ID()} {
		if i := g.job(id); i.Result.Outcome != sandbox.Running {
			g.Errorf("without its host: %+v", i.Result)
		}
	}
}

func testDetach(g *guest) {
	var out text
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: "echo a; sleep 1000"}, client.Output{Stdout: &out})
	g.ok(err)
	g.await(&out, "a\n")
	g.ok(p.Detach())
	if i := g.job(p.ID()); i.Result.Outcome != sandbox.Running {
		g.Errorf("got %+v", i.Result)
	}
	q, err := g.s.Attach(g.ctx, p.ID(), 2, 0, client.Output{})
	g.ok(err)
	g.ok(q.Kill(g.ctx))
	g.result(q)
}

func testKillAll(g *guest) {
	p := g.background(deepTree + "sleep 1000")
	g.eventually("it runs", func() bool { return g.job(p.ID()).StdoutEnd > 0 })
	_, err := g.s.KillAll(g.ctx)
	g.ok(err)
	if i, err := g.s.WaitExec(g.ctx, p.ID(), 10*time.Second, false); err != nil || i.Result.Outcome == sandbox.Running {
		g.Errorf("got %+v, %v", i.Result, err)
	}
	if n, err := g.s.KillAll(g.ctx); n != 0 || err != nil {
		g.Errorf("%d processes were left, %v", n, err)
	}
	if got := g.sh("echo still here"); got != "still here\n" {
		g.Errorf("got %q", got)
	}
}

// testMany runs many commands at once: each has its own output and code.
func testMany(g *guest) {
	n := 40
	err := firstOf(atOnce(n, func(i int) error {
		r, err := g.s.Run(g.ctx, sandbox.Command{Shell: fmt.Sprintf("echo %d; exit %d", i, i)}, nil)
		if err == nil && (string(r.Stdout) != itoa(i)+"\n" || r.ExitCode != i) {
			err = fmt.Errorf("command %d: got %q, %d", i, r.Stdout, r.ExitCode)
		}
		return err
	}))
	if err != nil {
		g.Error(err)
	}
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
