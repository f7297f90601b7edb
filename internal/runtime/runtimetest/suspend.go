package runtimetest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// testSuspend writes a sandbox to disk and brings it back, twice over, each
// time with a command that goes on.
func testSuspend(e *env) {
	sus, ok := runtime.As[runtime.Suspender](e.rt)
	if !ok || !e.rt.Capabilities().Suspend {
		e.Skipf("%s has no suspend", e.rt.Capabilities().Name)
	}
	g := e.guest()
	g.sh("echo kept > /tmp/kept")
	p := g.background(counter)
	var out text
	images := e.imagesDir()
	for round := range 3 {
		g.followTo(&out, p.ID(), 10*(round+1))
		if round == 1 { // from an adopted stream as well
			g.connect()
		}
		image := filepath.Join(images, itoa(round))
		g.suspendTo(sus, image)
		e.states(map[string]sandbox.State{})
		g.id = e.newID()
		e.ok(sus.Resume(e.ctx, e.spec(g.id), image))
		e.states(map[string]sandbox.State{g.id: sandbox.Live})
		g.connect()
		if got := g.sh("cat /tmp/kept; hostname"); got != "kept\n"+g.id[:12]+"\n" {
			e.Errorf("round %d: got %q", round, got)
		}
	}
	g.followTo(&out, p.ID(), 60)
	e.testClones(sus, filepath.Join(images, "2"), p.ID())
	e.want("resume from nothing", sus.Resume(e.ctx, e.spec(e.newID()), filepath.Join(images, "none")), errdefs.IsNotFound)
	e.want("suspend what is not there", sus.Suspend(e.ctx, e.newID(), filepath.Join(images, "x")), errdefs.IsNotFound)
}

// testClones resumes one image twice more: each copy goes its own way.
func (e *env) testClones(sus runtime.Suspender, image, exec string) {
	e.Helper()
	for range 2 {
		c := &guest{env: e, id: e.newID(), epoch: 100}
		e.ok(sus.Resume(e.ctx, e.spec(c.id), image))
		c.connect()
		c.sh("test ! -e /tmp/mine && echo > /tmp/mine")
		out := text{}
		c.followTo(&out, exec, 60)
	}
}

// imagesDir is beside what the back end owns.
func (e *env) imagesDir() string {
	e.Helper()
	dir, err := os.MkdirTemp("", "img")
	e.ok(err)
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (g *guest) suspendTo(sus runtime.Suspender, image string) {
	g.Helper()
	g.ok(g.s.Quiesce(g.ctx))
	g.ok(sus.Suspend(g.ctx, g.id, image))
}

// followTo reads a counter's output from where out ends until line n.
func (g *guest) followTo(out *text, exec string, n int) {
	g.Helper()
	p, err := g.s.Attach(g.ctx, exec, int64(len(out.String())), 0, client.Output{Stdout: out})
	g.ok(err)
	g.await(out, fmt.Sprintf("line %d\n", n))
	g.ok(p.Detach())
	_, _ = p.Wait(g.ctx) // nothing more is written to out
	if err := consecutive(out.String()); err != nil {
		g.Error(err)
	}
}
