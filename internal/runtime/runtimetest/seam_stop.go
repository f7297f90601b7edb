package runtimetest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// needStop ends a test of a back end that can't stop.
func (e *env) needStop() {
	e.Helper()
	if c := e.rt.Capabilities(); !c.Stop {
		e.Skipf("%s has no stop", c.Name)
	}
}

func testStop(e *env) {
	e.needStop()
	id := e.running()
	s := e.session(id, 1)
	e.ok(s.WriteFile(e.ctx, "kept", strings.NewReader("text"), client.WriteOptions{}))
	_, err := s.Start(e.ctx, "waits", sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true}, client.Output{})
	e.ok(err)
	e.ok(e.rt.Stop(e.ctx, id))
	e.ended(s)
	e.states(map[string]sandbox.State{id: sandbox.Stopped})
	if i := e.info(id); i.Pid != 0 || time.Since(i.Saved) > time.Minute {
		e.Errorf("stopped: %+v", i)
	}
	if st, ok := runtime.As[runtime.StatsReader](e.rt); ok {
		m, err := st.Stats(e.ctx, id)
		if err != nil || m.Memory != 0 || m.Pids != 0 || m.DiskUsed == 0 {
			e.Errorf("a stopped sandbox uses %+v, %v", m, err)
		}
	}
	e.want("stop again", e.rt.Stop(e.ctx, id), errdefs.IsFailedPrecondition)
	_, err = e.rt.Attach(e.ctx, id)
	e.want("attach to a stopped one", err, errdefs.IsFailedPrecondition)
	e.reopen()
	e.states(map[string]sandbox.State{id: sandbox.Stopped})

	e.ok(e.rt.Start(e.ctx, id))
	s = e.session(id, 1)
	if got := fileText(e, s, "kept"); got != "text" {
		e.Errorf("the file holds %q", got)
	}
	if all, err := s.Execs(e.ctx); len(all) != 0 || err != nil {
		e.Errorf("commands lived on: %+v, %v", all, err)
	}
}

func fileText(e *env, s *client.Session, name string) string {
	e.Helper()
	r, err := s.ReadFile(e.ctx, name, client.ReadOptions{})
	e.ok(err)
	defer r.Close()
	b, err := io.ReadAll(r)
	e.ok(err)
	return string(b)
}

// restart stops a sandbox, starts it and connects.
func (g *guest) restart() {
	g.Helper()
	g.ok(g.rt.Stop(g.ctx, g.id))
	g.ok(g.rt.Start(g.ctx, g.id))
	g.epoch = 0
	g.connect()
}

// testStopCycles changes files between 20 stops. None is lost, none comes back,
// and times are kept to the nanosecond.
func testStopCycles(e *env) {
	e.needStop()
	g := e.guest()
	g.ok(g.s.Mkdir(g.ctx, "/tmp/tree", client.MkdirOptions{}))
	texts, times := map[string]string{}, map[string]time.Time{}
	note := func(name, text string) {
		g.write(name, text, client.WriteOptions{Parents: true})
		texts[name] = text
	}
	for n := range 20 {
		note(fmt.Sprintf("/tmp/tree/%d/file", n), fmt.Sprint("of cycle ", n))
		note("/tmp/tree/same", strings.Repeat("x", 1000*(20-n)))
		if gone := fmt.Sprintf("/tmp/tree/%d/file", n-3); texts[gone] != "" {
			g.ok(g.s.Remove(g.ctx, gone, client.RemoveOptions{}))
			delete(texts, gone)
			delete(times, gone)
		}
		for name := range texts {
			times[name] = g.stat(name).Mtime
		}
		g.restart()
		all, _, err := g.s.List(g.ctx, "/tmp/tree", client.ListOptions{Depth: 8})
		g.ok(err)
		found := map[string]time.Time{}
		for _, i := range all {
			if i.Mode.IsRegular() {
				found[i.Path] = i.Mtime
				if got := g.read(i.Path, client.ReadOptions{}); got != texts[i.Path] {
					g.Fatalf("cycle %d: %s holds %.20q, not %.20q", n, i.Path, got, texts[i.Path])
				}
			}
		}
		if !maps.EqualFunc(found, times, time.Time.Equal) {
			g.Fatalf("cycle %d: there are %v, should be %v", n, found, times)
		}
	}
}

// testStopThenCrash: a sandbox that crashes has the files of its last stop.
func testStopThenCrash(e *env) {
	e.needStop()
	g := e.guest()
	g.write("/tmp/f", "saved", client.WriteOptions{})
	g.restart()
	g.write("/tmp/f", "not saved", client.WriteOptions{})
	saved := g.info(g.id).Saved
	for _, reopen := range []bool{false, true} {
		e.crash(g.id)
		e.eventually("the list tells of the death", func() bool { return e.info(g.id).State == sandbox.Failed })
		if reopen {
			e.reopen()
		}
		if i := e.info(g.id); i.State != sandbox.Failed || i.Reason == "" || !i.Saved.Equal(saved) {
			e.Errorf("dead: %+v", i)
		}
		e.want("stop a dead one", e.rt.Stop(e.ctx, g.id), errdefs.IsFailedPrecondition)
		e.ok(e.rt.Start(e.ctx, g.id))
		e.states(map[string]sandbox.State{g.id: sandbox.Live})
		if i := e.info(g.id); i.Reason != "" {
			e.Errorf("alive again: %+v", i)
		}
		g.epoch = 0
		g.connect()
		if got := g.read("/tmp/f", client.ReadOptions{}); got != "saved" {
			e.Errorf("the file holds %q", got)
		}
	}
}

// testStopFull: what was saved counts against the disk's limit again.
func testStopFull(e *env) {
	e.needStop()
	g := e.guest()
	g.write("/tmp/most", strings.Repeat("x", 48<<20), client.WriteOptions{})
	for range 3 {
		g.restart()
		err := g.s.WriteFile(g.ctx, "/tmp/more", strings.NewReader(strings.Repeat("y", 32<<20)), client.WriteOptions{})
		g.want("80 MiB on a disk of 64", err, errdefs.IsResourceExhausted)
		g.ok(g.s.Remove(g.ctx, "/tmp/more", client.RemoveOptions{})) // what fitted
		g.write("/tmp/less", strings.Repeat("z", 8<<20), client.WriteOptions{})
		g.ok(g.s.Remove(g.ctx, "/tmp/less", client.RemoveOptions{}))
	}
}

// testStopCanceled: a stop or a start whose caller goes away is done or not,
// never half.
func testStopCanceled(e *env) {
	e.needStop()
	g := e.guest()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for n := range rounds {
		g.write("/tmp/f", itoa(n), client.WriteOptions{})
		ctx, cancel := context.WithTimeout(e.ctx, rand.N(150*time.Millisecond))
		err := e.rt.Stop(ctx, g.id)
		cancel()
		if err == nil {
			g.startCanceled()
		} else if !canceled(err) {
			e.Errorf("stop with a context that ends: %v", err)
		}
		e.states(map[string]sandbox.State{g.id: sandbox.Live})
		g.epoch += 10
		g.connect()
		if got := g.read("/tmp/f", client.ReadOptions{}); got != itoa(n) {
			e.Errorf("the file holds %q, want %d", got, n)
		}
	}
	gone, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := e.rt.Stop(gone, g.id); !canceled(err) {
		e.Errorf("stop with a context that has ended: %v", err)
	}
	if _, err := g.s.Ping(e.ctx); err != nil {
		e.Errorf("a stop that did not begin ended the session: %v", err)
	}
}

// startCanceled starts a stopped sandbox, at the second try at last.
func (g *guest) startCanceled() {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, rand.N(200*time.Millisecond))
	defer cancel()
	err := g.rt.Start(ctx, g.id)
	if err == nil {
		return
	}
	if !canceled(err) {
		g.Errorf("start with a context that ends: %v", err)
	}
	g.states(map[string]sandbox.State{g.id: sandbox.Stopped})
	g.ok(g.rt.Start(g.ctx, g.id))
}

// testStopAtOnce lets calls run into each other: one stop is done, the others
// are refused, and the sandbox is whole in the end or gone.
func testStopAtOnce(e *env) {
	e.needStop()
	g := e.guest()
	g.write("/tmp/f", "text", client.WriteOptions{})
	done := 0
	for _, err := range atOnce(4, func(int) error { return e.rt.Stop(e.ctx, g.id) }) {
		if err == nil {
			done++
			continue
		}
		e.want("stop at once", err, errdefs.IsFailedPrecondition)
	}
	if done != 1 {
		e.Errorf("%d calls stopped the sandbox", done)
	}
	done = 0
	for _, err := range atOnce(4, func(int) error { return e.rt.Start(e.ctx, g.id) }) {
		if err == nil {
			done++
			continue
		}
		e.want("start at once", err, errdefs.IsFailedPrecondition)
	}
	if done != 1 {
		e.Errorf("%d calls started the sandbox", done)
	}
	g.epoch = 0
	g.connect()
	if got := g.read("/tmp/f", client.ReadOptions{}); got != "text" {
		e.Errorf("the file holds %q", got)
	}
	calls := []func() error{
		func() error { return e.rt.Stop(e.ctx, g.id) },
		func() error { return e.rt.Destroy(e.ctx, g.id) },
		func() error { return e.rt.Start(e.ctx, g.id) },
	}
	for i, err := range atOnce(len(calls), func(i int) error { return calls[i]() }) {
		if err != nil && (i == 1 || !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err)) {
			e.Errorf("call %d: %v", i, err)
		}
	}
	e.states(map[string]sandbox.State{})
}
