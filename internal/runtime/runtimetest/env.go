package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// testTime bounds one test, or one round of a long one. Nothing in it comes near.
const testTime = 3 * time.Minute

// env is one test with a back end of its own.
type env struct {
	*testing.T
	f     Factory
	ctx   context.Context
	dir   string
	image runtime.Image
	rt    runtime.Runtime
	made  []string // ids of all sandboxes
}

func newEnv(t *testing.T, f Factory) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	e := &env{T: t, f: f, ctx: ctx}
	var err error
	if f.Image != nil {
		e.image, err = f.Image()
		e.ok(err)
	}
	// Not TempDir of testing: sockets need a short path.
	e.dir, err = os.MkdirTemp("", "rt")
	e.ok(err)
	t.Cleanup(func() { _ = os.RemoveAll(e.dir) })
	e.open()
	before := e.look()
	t.Cleanup(func() { e.finish(before) })
	return e
}

// round gives a round of a long test its own time.
func (e *env) round() {
	ctx, cancel := context.WithTimeout(e.Context(), testTime)
	e.Cleanup(cancel)
	e.ctx = ctx
}

// finish destroys what the test left and looks for what stays behind.
func (e *env) finish(before traces) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e.ctx = ctx
	e.destroyAll()
	e.checkResidue(before)
	if err := e.rt.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
}

func (e *env) open() {
	e.Helper()
	rt, err := e.f.Open(e.dir)
	if err != nil {
		e.Fatalf("open the back end: %v", err)
	}
	e.rt = rt
}

// reopen is a restart in the same process.
func (e *env) reopen() {
	e.Helper()
	e.ok(e.rt.Close())
	e.open()
}

// needGuest ends a test that runs programs where there are none.
func (e *env) needGuest() {
	e.Helper()
	if c := e.rt.Capabilities(); !c.Guest {
		e.Skipf("%s runs no programs", c.Name)
	}
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// want checks the class of an error.
func (e *env) want(what string, err error, is func(error) bool) {
	e.Helper()
	if !is(err) {
		e.Errorf("%s: got error %v of another class", what, err)
	}
}

// newID draws an id and remembers it.
func (e *env) newID() string {
	id := ids.UID()
	e.made = append(e.made, id)
	return id
}

// spec is a small sandbox of the given id.
func (e *env) spec(id string) runtime.Spec { return smallSpec(id, e.image) }

func smallSpec(id string, image runtime.Image) runtime.Spec {
	l := sandbox.Limits{Memory: 256 * sandbox.MiB, Disk: 64 * sandbox.MiB, Pids: 64}
	return runtime.Spec{ID: id, Image: image, Limits: l.WithDefaults(), Labels: map[string]string{"suite": "runtimetest"}}
}

func (e *env) created() string {
	e.Helper()
	id := e.newID()
	e.ok(e.rt.Create(e.ctx, e.spec(id)))
	return id
}

func (e *env) running() string {
	e.Helper()
	id := e.created()
	e.ok(e.rt.Start(e.ctx, id))
	return id
}

// crash ends the process of a sandbox from outside.
func (e *env) crash(id string) {
	e.Helper()
	e.end(id, e.info(id).Pid)
}

func (e *env) end(id string, pid int) {
	e.Helper()
	if e.f.Crash != nil {
		e.ok(e.f.Crash(e.dir, id))
		return
	}
	e.ok(kill(pid))
}

// kill ends a process. Pid 0 would be this process itself with its group.
func kill(pid int) error {
	if pid <= 1 {
		return fmt.Errorf("kill process %d: no process of a sandbox", pid)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func (e *env) list() []runtime.Info {
	e.Helper()
	all, err := e.rt.List(e.ctx)
	e.ok(err)
	return all
}

func (e *env) info(id string) runtime.Info {
	e.Helper()
	all := e.list()
	i := slices.IndexFunc(all, func(i runtime.Info) bool { return i.ID == id })
	if i < 0 {
		e.Fatalf("%s is not in the list", ids.Short(id))
	}
	return all[i]
}

// states checks that exactly the given sandboxes are listed, in these states.
func (e *env) states(want map[string]sandbox.State) {
	e.Helper()
	got := map[string]sandbox.State{}
	last := ""
	for _, i := range e.list() {
		if i.ID <= last {
			e.Errorf("the list is not sorted: %s after %s", ids.Short(i.ID), ids.Short(last))
		}
		got[i.ID], last = i.State, i.ID
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.Errorf("listed are %v, want %v", got, want)
	}
}

// eventually waits until f holds.
func (e *env) eventually(what string, f func() bool) {
	e.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("%s: not within 10 s", what)
		}
	}
}

// session attaches to a sandbox and greets its agent.
func (e *env) session(id string, epoch uint64, change ...func(*guestv1.GuestConfig)) *client.Session {
	e.Helper()
	s, err := openSession(e.ctx, e.rt, id, epoch, change...)
	e.ok(err)
	e.Cleanup(func() { s.Close() })
	return s
}

// ended waits for the end of a session.
func (e *env) ended(s *client.Session) {
	e.Helper()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		e.Fatal("the session did not end within 20 s")
	}
}

func openSession(ctx context.Context, rt runtime.Runtime, id string, epoch uint64, change ...func(*guestv1.GuestConfig)) (*client.Session, error) {
	return openTunnel(ctx, rt, id, epoch, nil, change...)
}

// openTunnel begins a session that has a way to the outside, unless t is nil.
func openTunnel(ctx context.Context, rt runtime.Runtime, id string, epoch uint64, t client.Tunnel, change ...func(*guestv1.GuestConfig)) (*client.Session, error) {
	conn, err := rt.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	l := smallSpec(id, runtime.Image{}).Limits
	c := &guestv1.GuestConfig{
		MemoryLimit: l.Memory, MaxPids: l.Pids, OpenFiles: l.OpenFiles, User: "user", Workdir: "/tmp",
		Env: [][]byte{[]byte("SUITE=runtimetest")},
	}
	for _, f := range change {
		f(c)
	}
	return client.New(ctx, conn, client.Options{SandboxID: id, Hostname: ids.Short(id), Epoch: epoch, Config: c, Tunnel: t})
}

// canceled reports whether an error comes from the end of a context.
func canceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
