package runtimetest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

func testLife(e *env) {
	c := e.rt.Capabilities()
	if c.Name == "" || c.Version == "" || c.Mode == "" {
		e.Errorf("capabilities have no name, version or mode: %+v", c)
	}
	start := time.Now()
	id := e.created()
	i := e.info(id)
	if i.State != sandbox.Created || !maps.Equal(i.Labels, e.spec(id).Labels) || i.Limits != e.spec(id).Limits {
		e.Errorf("created: %+v", i)
	}
	if i.Created.Before(start.Add(-time.Second)) || i.Created.After(time.Now().Add(time.Second)) {
		e.Errorf("it was created at %v, says the list", i.Created)
	}
	e.ok(e.rt.Start(e.ctx, id))
	e.states(map[string]sandbox.State{id: sandbox.Live})
	if c.Guest && e.info(id).Pid == 0 {
		e.Error("a running sandbox has no pid")
	}
	s := e.session(id, 1)
	if _, err := s.Ping(e.ctx); err != nil {
		e.Error(err)
	}
	e.ok(e.rt.Destroy(e.ctx, id))
	e.states(map[string]sandbox.State{})
	e.ended(s)
	e.ok(e.rt.Create(e.ctx, e.spec(id))) // its name is free again
}

func testWrongState(e *env) {
	created, running := e.created(), e.running()
	dead := e.running()
	e.crash(dead)
	e.eventually("the list tells of the death", func() bool { return e.info(dead).State == sandbox.Failed })
	stopImplemented := e.rt.Capabilities().Stop

	attach := func(id string) error {
		conn, err := e.rt.Attach(e.ctx, id)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		is   func(error) bool
	}{
		{"create over a created one", e.rt.Create(e.ctx, e.spec(created)), errdefs.IsAlreadyExists},
		{"create over a running one", e.rt.Create(e.ctx, e.spec(running)), errdefs.IsAlreadyExists},
		{"create over a dead one", e.rt.Create(e.ctx, e.spec(dead)), errdefs.IsAlreadyExists},
		{"start a running one", e.rt.Start(e.ctx, running), errdefs.IsFailedPrecondition},
		{"start a dead one", e.rt.Start(e.ctx, dead), errdefs.IsFailedPrecondition},
		{"attach to a created one", attach(created), errdefs.IsFailedPrecondition},
		{"attach to a dead one", attach(dead), errdefs.IsFailedPrecondition},
	} {
		e.want(c.what, c.err, c.is)
	}
	if stopImplemented {
		e.want("stop a created one", e.rt.Stop(e.ctx, created), errdefs.IsFailedPrecondition)
		e.want("stop a dead one", e.rt.Stop(e.ctx, dead), errdefs.IsFailedPrecondition)
	} else {
		e.want("stop", e.rt.Stop(e.ctx, running), errdefs.IsNotImplemented)
	}
	// None of that changed anything.
	e.states(map[string]sandbox.State{created: sandbox.Created, running: sandbox.Live, dead: sandbox.Failed})
	e.session(running, 1)
}

func testUnknownID(e *env) {
	e.refuses(e.newID())
}

// refuses checks that the back end knows no sandbox of that id.
func (e *env) refuses(id string) {
	e.Helper()
	e.want("start "+id, e.rt.Start(e.ctx, id), errdefs.IsNotFound)
	_, err := e.rt.Attach(e.ctx, id)
	e.want("attach "+id, err, errdefs.IsNotFound)
	if e.rt.Capabilities().Stop {
		e.want("stop "+id, e.rt.Stop(e.ctx, id), errdefs.IsNotFound)
	}
	if err := e.rt.Destroy(e.ctx, id); err != nil {
		e.Errorf("destroy %q: %v", id, err)
	}
}

func testBadID(e *env) {
	good := ids.UID()
	for _, id := range []string{
		"", "x", good[:12], good[:63], good + "0", strings.ToUpper(good[:63] + "a"), good[:63] + "g", good[:63] + "\n",
		"../" + good[:61], strings.Repeat(".", 64), strings.Repeat("/", 64),
	} {
		e.want("create "+id, e.rt.Create(e.ctx, e.spec(id)), errdefs.IsInvalidArgument)
		e.refuses(id)
	}
	e.states(map[string]sandbox.State{})
}

func testPrefix(e *env) {
	a := e.created()
	b := a[:ids.ShortLen] + ids.UID()[ids.ShortLen:] // another one with the same short form
	e.made = append(e.made, b)
	e.ok(e.rt.Create(e.ctx, e.spec(b)))
	for _, id := range []string{a[:1], a[:ids.ShortLen], a[:24], a[:63], a + "0", a + a} {
		e.refuses(id)
	}
	e.states(map[string]sandbox.State{a: sandbox.Created, b: sandbox.Created})
	e.ok(e.rt.Destroy(e.ctx, a))
	e.states(map[string]sandbox.State{b: sandbox.Created})
	e.ok(e.rt.Start(e.ctx, b))
	e.session(b, 1)
}

func testDestroy(e *env) {
	for name, make := range map[string]func() string{
		"created": e.created,
		"running": e.running,
		"attached": func() string {
			id := e.running()
			e.session(id, 1)
			return id
		},
		"attached and not greeted": func() string {
			id := e.running()
			conn, err := e.rt.Attach(e.ctx, id)
			e.ok(err)
			e.Cleanup(func() { conn.Close() })
			return id
		},
		"busy": func() string {
			id := e.running()
			_, err := e.session(id, 1).Start(e.ctx, "busy", sandbox.Command{Argv: []string{"yes"}, Background: true}, client.Output{})
			e.ok(err)
			return id
		},
		"dead": func() string {
			id := e.running()
			e.crash(id)
			return id
		},
		"stopped": func() string {
			id := e.running()
			if e.rt.Capabilities().Stop {
				e.ok(e.rt.Stop(e.ctx, id))
			}
			return id
		},
	} {
		id := make()
		for range 2 {
			if err := e.rt.Destroy(e.ctx, id); err != nil {
				e.Errorf("destroy a sandbox that is %s: %v", name, err)
			}
		}
	}
	e.states(map[string]sandbox.State{})
}

// atOnce calls f n times at once and returns the errors.
func atOnce(n int, f func(int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func testCreateAtOnce(e *env) {
	id := e.newID()
	made := 0
	for _, err := range atOnce(4, func(int) error { return e.rt.Create(e.ctx, e.spec(id)) }) {
		if err == nil {
			made++
			continue
		}
		e.want("create the same at once", err, errdefs.IsAlreadyExists)
	}
	if made != 1 {
		e.Errorf("%d calls made the sandbox", made)
	}
	e.ok(e.rt.Destroy(e.ctx, id))

	names := []string{e.newID(), e.newID(), e.newID(), e.newID()}
	err := errors.Join(atOnce(len(names), func(i int) error {
		if err := e.rt.Create(e.ctx, e.spec(names[i])); err != nil {
			return err
		}
		if err := e.rt.Start(e.ctx, names[i]); err != nil {
			return err
		}
		s, err := openSession(e.ctx, e.rt, names[i], 1)
		if err != nil {
			return err
		}
		_, err = s.Ping(e.ctx)
		return errors.Join(err, s.Close())
	})...)
	if err != nil {
		e.Error(err)
	}
	e.ok(errors.Join(atOnce(len(names), func(i int) error { return e.rt.Destroy(e.ctx, names[i]) })...))
	e.states(map[string]sandbox.State{})
}

// testDestroyAtOnce lets other calls run into a Destroy: each ends well, or
// with NotFound or FailedPrecondition.
func testDestroyAtOnce(e *env) {
	id := e.created()
	calls := []func() error{
		func() error { return e.rt.Destroy(e.ctx, id) },
		func() error { return e.rt.Start(e.ctx, id) },
		func() error { return e.rt.Destroy(e.ctx, id) },
		func() error {
			conn, err := e.rt.Attach(e.ctx, id)
			if err == nil {
				conn.Close()
			}
			return err
		},
		func() error { _, err := e.rt.List(e.ctx); return err },
	}
	for i, err := range atOnce(len(calls), func(i int) error { return calls[i]() }) {
		switch {
		case err == nil, errdefs.IsNotFound(err), i == 3 && errdefs.IsFailedPrecondition(err):
		default:
			e.Errorf("call %d: %v", i, err)
		}
	}
	e.ok(e.rt.Destroy(e.ctx, id))
	e.states(map[string]sandbox.State{})
}

func testCanceled(e *env) {
	gone, cancel := context.WithCancel(e.ctx)
	cancel()
	id := e.newID()
	if err := e.rt.Create(gone, e.spec(id)); err == nil {
		e.Error("create with a context that has ended made a sandbox")
	}
	e.states(map[string]sandbox.State{})

	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		id := e.newID()
		ctx, cancel := context.WithTimeout(e.ctx, rand.N(150*time.Millisecond))
		err := e.rt.Create(ctx, e.spec(id))
		cancel()
		if err == nil {
			e.ok(e.rt.Destroy(e.ctx, id))
			continue
		}
		if !canceled(err) {
			e.Errorf("create with a context that ends: %v", err)
		}
		e.states(map[string]sandbox.State{})
	}
}

func testRequire(e *env) {
	limits := []string{sandbox.LimitMemory, sandbox.LimitCPUs, sandbox.LimitPids, sandbox.LimitDisk}
	unenforced := map[string]bool{}
	for _, l := range e.rt.Capabilities().NotEnforced {
		unenforced[l] = true
	}
	for _, l := range limits {
		spec := e.spec(e.newID())
		spec.Require = []string{l}
		err := e.rt.Create(e.ctx, spec)
		switch {
		case unenforced[l]:
			e.want("create that requires "+l, err, errdefs.IsFailedPrecondition)
			e.states(map[string]sandbox.State{})
		case err != nil:
			e.Errorf("create that requires %s: %v", l, err)
		default:
			e.ok(e.rt.Destroy(e.ctx, spec.ID))
		}
	}
	spec := e.spec(e.newID())
	spec.Require = []string{"weight"}
	e.want("create that requires what nobody knows", e.rt.Create(e.ctx, spec), func(err error) bool {
		return errdefs.IsInvalidArgument(err) || errdefs.IsFailedPrecondition(err)
	})
	id := e.created()
	for _, l := range e.info(id).NotEnforced {
		if !unenforced[l] {
			e.Errorf("%s is enforced, say the capabilities; not for this sandbox, says the list", l)
		}
		delete(unenforced, l)
	}
	if len(unenforced) > 0 {
		e.Errorf("not enforced, but the list of the sandbox does not say so: %v", unenforced)
	}
}
