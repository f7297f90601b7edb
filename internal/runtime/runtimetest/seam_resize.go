package runtimetest

import (
	"github.com/containerd/errdefs"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

func testResize(e *env) {
	r, ok := runtime.As[runtime.Resizer](e.rt)
	if !ok {
		e.Skipf("%s changes no limits", e.rt.Capabilities().Name)
	}
	id, created := e.running(), e.created()
	s := e.session(id, 1)
	want := e.info(id).Limits
	change := func() {
		e.Helper()
		if r, ok = runtime.As[runtime.Resizer](e.rt); !ok {
			e.Fatal("it changes no limits any more")
		}
		e.ok(r.Resize(e.ctx, id, want))
		if got := e.info(id).Limits; got != want {
			e.Errorf("limits are %+v, want %+v", got, want)
		}
	}
	want.Memory, want.CPUs, want.Pids = 2*want.Memory, want.CPUs/2, want.Pids+10
	change()
	want.Memory, want.CPUs, want.Pids = want.Memory/2, 2*want.CPUs, want.Pids-20
	change()
	if _, err := s.Ping(e.ctx); err != nil {
		e.Errorf("the session did not outlive it: %v", err)
	}

	more := want
	more.Disk++
	e.want("change the disk", r.Resize(e.ctx, id, more), errdefs.IsInvalidArgument)
	e.want("resize a created one", r.Resize(e.ctx, created, e.info(created).Limits), errdefs.IsFailedPrecondition)
	e.want("resize an unknown one", r.Resize(e.ctx, e.newID(), want), errdefs.IsNotFound)
	if got := e.info(id).Limits; got != want {
		e.Errorf("a refused change left %+v", got)
	}

	e.reopen()
	if got := e.info(id).Limits; got != want {
		e.Errorf("after a restart: %+v, want %+v", got, want)
	}
	if !e.rt.Capabilities().Stop {
		return
	}
	e.ok(e.rt.Stop(e.ctx, id))
	want.Memory += 64 * sandbox.MiB
	change()
	e.ok(e.rt.Start(e.ctx, id))
	e.session(id, 1)
	if got := e.info(id).Limits; got != want {
		e.Errorf("after a stop: %+v, want %+v", got, want)
	}
}
