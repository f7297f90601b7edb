package runtimetest

import (
	"maps"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// testSecondAttach checks that the agent follows the newest host, and that
// commands go on.
func testSecondAttach(e *env) {
	id := e.running()
	var last *client.Session
	for epoch := uint64(1); epoch <= 4; epoch++ {
		s := e.session(id, epoch)
		if last == nil {
			_, err := s.Start(e.ctx, "waits", sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true}, client.Output{})
			e.ok(err)
		} else {
			e.ended(last)
			if _, err := last.Ping(e.ctx); err == nil {
				e.Error("the session that was replaced still answers")
			}
		}
		all, err := s.Execs(e.ctx)
		e.ok(err)
		if len(all) != 1 || all[0].Result.Outcome != sandbox.Running {
			e.Fatalf("epoch %d: the agent lists %+v", epoch, all)
		}
		last = s
	}
	// An older host does not take the sandbox back.
	if s, err := openSession(e.ctx, e.rt, id, 2); err == nil {
		s.Close()
		e.Error("the agent took an older epoch")
	}
	if _, err := e.session(id, 9).Ping(e.ctx); err != nil {
		e.Error(err)
	}
}

func testReopen(e *env) {
	created, running := e.created(), e.running()
	s := e.session(running, 1)
	_, err := s.Start(e.ctx, "waits", sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true}, client.Output{})
	e.ok(err)
	before := e.list()
	e.ok(s.Close())
	e.reopen()
	e.states(map[string]sandbox.State{created: sandbox.Created, running: sandbox.Live})
	for n, i := range e.list() {
		b := before[n]
		if !i.Created.Equal(b.Created) || !maps.Equal(i.Labels, b.Labels) || i.Limits != b.Limits || i.Pid != b.Pid {
			e.Errorf("was %+v, is %+v after a restart", b, i)
		}
	}
	e.want("create again", e.rt.Create(e.ctx, e.spec(created)), errdefs.IsAlreadyExists)
	all, err := e.session(running, 2).Execs(e.ctx)
	e.ok(err)
	if len(all) != 1 || all[0].Result.Outcome != sandbox.Running {
		e.Errorf("the command did not live on: %+v", all)
	}
	e.ok(e.rt.Destroy(e.ctx, created))
	e.ok(e.rt.Destroy(e.ctx, running))
	e.states(map[string]sandbox.State{})
	e.reopen()
	e.states(map[string]sandbox.State{})
}

func testClose(e *env) {
	id := e.running()
	events := e.rt.Watch(e.ctx)
	e.ok(e.rt.Close())
	if ev, ok := <-events; ok {
		e.Errorf("closing told of an end: %+v", ev)
	}
	e.ok(e.rt.Close())
	e.open()
	e.states(map[string]sandbox.State{id: sandbox.Live})
}
