package runtimetest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// testRandomStops kills hosts at random moments of Stop and Start, and sandboxes
// at random moments of Stop. A host's death costs nothing: the sandbox runs on
// or is stopped, with all its files. A sandbox's death costs at most what was
// written after the last stop.
func testRandomStops(e *env) {
	e.needStop()
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	rnd := e.random()
	before := e.look()
	g := e.guest()
	g.sh("head -c 20000000 /dev/urandom >/tmp/big; sha256sum /tmp/big >/tmp/sum")
	g.restart()
	took := g.timeOfStop()
	saved := ""
	for round := range rounds {
		e.round()
		want := itoa(round)
		g.write("/tmp/f", want, client.WriteOptions{})
		if round == 0 {
			g.restart()
			saved = want
		}
		last := g.info(g.id).Saved
		state := g.killInStop(rnd, took)
		if !g.info(g.id).Saved.Equal(last) {
			saved = want
		}
		if state != sandbox.Live {
			e.nothingRuns(state)
			e.ok(e.rt.Start(e.ctx, g.id))
		}
		g.epoch += 10
		g.connect()
		g.sh("sha256sum -c /tmp/sum")
		got := g.read("/tmp/f", client.ReadOptions{})
		if got != want && (state != sandbox.Failed || got != saved) {
			e.Errorf("round %d: the sandbox was %s, the file holds %q; the last stop saved %q", round, state, got, saved)
		}
		if e.Failed() {
			return
		}
	}
	e.ok(g.s.Close())
	e.destroyAll()
	e.checkResidue(before)
}

// timeOfStop measures a stop and a start.
func (g *guest) timeOfStop() (took [2]time.Duration) {
	g.Helper()
	start := time.Now()
	g.ok(g.rt.Stop(g.ctx, g.id))
	took[0] = time.Since(start)
	start = time.Now()
	g.ok(g.rt.Start(g.ctx, g.id))
	took[1] = time.Since(start)
	g.connect()
	return took
}

// killInStop lets a host stop the sandbox, or start it again, and kills one of
// them meanwhile. It returns the state that a new host finds.
func (g *guest) killInStop(rnd *rand.Rand, took [2]time.Duration) sandbox.State {
	g.Helper()
	op := rnd.IntN(2)
	delay := time.Duration(rnd.Float64() * 1.3 * float64(took[op]))
	box := op == 0 && rnd.IntN(3) == 0
	pid := g.info(g.id).Pid
	g.ok(g.s.Close())
	h := g.hand()
	if op == 1 {
		h.do(request{Op: "stop", ID: g.id})
		h.begin(request{Op: "start", ID: g.id})
	} else {
		h.begin(request{Op: "stop", ID: g.id})
	}
	time.Sleep(delay)
	if box {
		g.killWhole(pid)
	}
	h.kill()
	// If this process started it, no other can reap it.
	_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	i := g.info(g.id)
	g.Logf("killed %v into %s (the sandbox: %v): found it %s", delay.Round(time.Millisecond), []string{"stop", "start"}[op], box, i.State)
	switch i.State {
	case sandbox.Live, sandbox.Stopped:
	case sandbox.Failed:
		if !box {
			g.Errorf("the sandbox is %+v", i)
		}
	default:
		g.Errorf("the sandbox is %+v", i)
	}
	return i.State
}

// killWhole kills a process and waits for its last thread; it may have ended.
func (g *guest) killWhole(pid int) {
	g.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = kill(pid)
	g.eventually("the sandbox is dead", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	})
}

// nothingRuns checks that a sandbox that does not run takes no process and, when
// it was stopped, no control group.
func (e *env) nothingRuns(state sandbox.State) {
	e.Helper()
	for _, p := range e.processes() {
		if strings.Contains(p, e.dir) {
			e.Errorf("a sandbox that is %s has the process %s", state, p)
		}
	}
	if groups := e.cgroups(); state == sandbox.Stopped && len(groups) > 0 {
		e.Errorf("a stopped sandbox has control groups: %v", groups)
	}
}
