package runtimetest

import (
	"context"
	"maps"
	"time"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// next receives the next event.
func (e *env) next(events <-chan runtime.Event) runtime.Event {
	e.Helper()
	select {
	case ev, ok := <-events:
		if !ok {
			e.Fatal("the channel of events was closed")
		}
		return ev
	case <-time.After(20 * time.Second):
		e.Fatal("no event within 20 s")
	}
	return runtime.Event{}
}

func testWatch(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	events := e.rt.Watch(ctx)
	id, other := e.running(), e.running()
	s := e.session(id, 1)
	before := time.Now()
	e.crash(id)
	ev := e.next(events)
	if ev.ID != id || ev.Reason == sandbox.ReasonNone || ev.Reason == sandbox.ReasonDestroyed {
		e.Errorf("got %+v", ev)
	}
	if ev.Time.Before(before.Add(-time.Second)) || ev.Time.After(time.Now().Add(time.Second)) {
		e.Errorf("the end was at %v, says the event", ev.Time)
	}
	e.ended(s)
	e.eventually("the list tells", func() bool {
		i := e.info(id)
		return i.State == sandbox.Failed && i.Reason == ev.Reason
	})
	e.states(map[string]sandbox.State{id: sandbox.Failed, other: sandbox.Live})
	cancel()
	for range events { // until it is closed
	}
}

// testWatchAll lets many sandboxes die while nobody receives.
func testWatchAll(e *env) {
	lazy, diligent := e.rt.Watch(e.ctx), e.rt.Watch(e.ctx)
	_ = e.rt.Watch(e.ctx) // never received from
	n := 4
	want := map[string]bool{}
	for range n {
		want[e.running()] = true
	}
	for id := range want {
		e.crash(id)
	}
	collect := func(events <-chan runtime.Event) {
		got := map[string]bool{}
		for range n {
			got[e.next(events).ID] = true
		}
		if !maps.Equal(got, want) {
			e.Errorf("told of %v, want %v", got, want)
		}
	}
	collect(diligent)
	e.eventually("all are dead", func() bool {
		for id := range want {
			if e.info(id).State != sandbox.Failed {
				return false
			}
		}
		return true
	})
	collect(lazy)
}

func testWatchReopened(e *env) {
	id := e.running()
	e.reopen()
	events := e.rt.Watch(e.ctx)
	e.crash(id)
	if ev := e.next(events); ev.ID != id {
		e.Errorf("got %+v", ev)
	}
	// One that dies while nobody is there is found dead.
	id2 := e.running()
	pid := e.info(id2).Pid
	e.ok(e.rt.Close())
	e.end(id2, pid)
	e.open()
	// The kernel may still be at it when we look first.
	e.eventually("the list tells of a sandbox that died meanwhile", func() bool {
		i := e.info(id2)
		return i.State == sandbox.Failed && i.Reason != sandbox.ReasonNone
	})
}

func testWatchSilent(e *env) {
	events := e.rt.Watch(e.ctx)
	destroyed := e.running()
	e.ok(e.rt.Destroy(e.ctx, destroyed))
	e.ok(e.rt.Destroy(e.ctx, e.created()))
	if e.rt.Capabilities().Stop {
		e.ok(e.rt.Stop(e.ctx, e.running()))
	}
	last := e.running()
	e.crash(last)
	if ev := e.next(events); ev.ID != last {
		e.Errorf("an end that was asked for was told: %+v", ev)
	}
}
