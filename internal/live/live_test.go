package live_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/live"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// backend is the fake one with what tests change.
type backend struct {
	runtime.Runtime
	noAttach error
	ooms     atomic.Int64
}

func (b *backend) Attach(ctx context.Context, id string) (net.Conn, error) {
	if b.noAttach != nil {
		return nil, b.noAttach
	}
	return b.Runtime.Attach(ctx, id)
}

// OOMKills implements runtime.OOMReader.
func (b *backend) OOMKills(context.Context, string) (int64, error) { return b.ooms.Load(), nil }

// open is what a process has of a machine.
func open(t *testing.T, machine *fake.Host) (*live.Host, *backend) {
	t.Helper()
	b := &backend{Runtime: machine.Open()}
	h := live.NewHost(b)
	t.Cleanup(func() {
		h.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, b
}

func newMachine(t *testing.T) *fake.Host {
	machine := fake.NewHost(fake.Options{})
	t.Cleanup(machine.Close)
	return machine
}

func spec() live.Spec {
	r := live.Request{Limits: sandbox.Limits{}.WithDefaults(), Env: []string{"A=b"}}
	return r.Spec(ids.UID(), image.Image{Path: "/images/x"})
}

// create makes a sandbox, which is let go of at the end of the test.
func create(t *testing.T, h *live.Host, s live.Spec) *live.Box {
	t.Helper()
	b, err := h.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.LetGo)
	return b
}

func begin(t *testing.T, b *live.Box, line string) *client.Process {
	t.Helper()
	p, err := b.Start(t.Context(), ids.Hex(10), sandbox.Command{Shell: line}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t *testing.T, b *live.Box, p *client.Process) *sandbox.Result {
	t.Helper()
	res, err := b.Wait(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A sandbox runs commands with what its agent was told.
func TestRun(t *testing.T) {
	h, _ := open(t, newMachine(t))
	b := create(t, h, spec())
	if res := wait(t, b, begin(t, b, "echo $A; exit 3")); res.Outcome != sandbox.Exited || res.ExitCode != 3 || string(res.Stdout) != "b\n" {
		t.Errorf("got %+v", res)
	}
	select {
	case <-b.Ended():
		t.Error("it has ended")
	default:
	}
}

// A sandbox that can't be made leaves nothing behind.
func TestCreateLeavesNothing(t *testing.T) {
	h, rt := open(t, newMachine(t))
	rt.noAttach = errors.New("no stream")
	if _, err := h.Create(t.Context(), spec()); !errors.Is(err, rt.noAttach) {
		t.Errorf("got %v", err)
	}
	if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// A command that goes down with its sandbox is told why; so is one that comes too late.
func TestWhyItEnded(t *testing.T) {
	machine := newMachine(t)
	h, _ := open(t, machine)
	for _, c := range []struct {
		reason  sandbox.Reason
		outcome sandbox.Outcome
		text    string
	}{
		{sandbox.ReasonOOM, sandbox.OOM, "memory limit"},
		{sandbox.ReasonCrashed, sandbox.Lost, "crashed: a detail"},
	} {
		s := spec()
		b := create(t, h, s)
		p := begin(t, b, "sleep infinity")
		if err := machine.Kill(s.ID, c.reason, "a detail"); err != nil {
			t.Fatal(err)
		}
		if res := wait(t, b, p); res.Outcome != c.outcome || !strings.Contains(res.Reason, c.text) {
			t.Errorf("%s: %+v", c.reason, res)
		}
		<-b.Ended()
		if ev := b.HowEnded(); ev.Reason != c.reason || ev.ID != s.ID {
			t.Errorf("%s: %+v", c.reason, ev)
		}
		if _, err := b.Start(t.Context(), ids.Hex(10), sandbox.Command{Shell: "true"}, client.Output{}); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: a command afterwards: %v", c.reason, err)
		}
	}
}

// What is ended by order is told that order, and the first one counts.
func TestEnd(t *testing.T) {
	h, _ := open(t, newMachine(t))
	b := create(t, h, spec())
	p := begin(t, b, "sleep infinity")
	b.End(sandbox.ReasonIdle, "")
	b.End(sandbox.ReasonDestroyed, "")
	if res := wait(t, b, p); res.Outcome != sandbox.Lost || !strings.Contains(res.Reason, string(sandbox.ReasonIdle)) {
		t.Errorf("got %+v", res)
	}
}

// Another process takes a sandbox over, with the commands that run in it.
func TestAdopt(t *testing.T) {
	machine := newMachine(t)
	first, _ := open(t, machine)
	s := spec()
	b := create(t, first, s)
	p := begin(t, b, "until [ -f /workspace/go ]; do sleep 0.01; done; echo end")
	second, _ := open(t, machine)
	taken, err := second.Adopt(t.Context(), s.ID, s.Config, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(taken.LetGo)
	<-b.Session().Done() // the older one
	wait(t, taken, begin(t, taken, "echo >/workspace/go"))
	again, err := taken.Session().Attach(t.Context(), p.ID(), 0, 0, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if res := wait(t, taken, again); string(res.Stdout) != "end\n" {
		t.Errorf("got %+v", res)
	}
	if _, err := second.Adopt(t.Context(), s.ID, s.Config, 1); err == nil {
		t.Error("it was taken over by an older process")
	}
}

// A command that the host killed for its memory is told apart from one that somebody
// else killed, as often as it is asked for.
func TestJudge(t *testing.T) {
	h, rt := open(t, newMachine(t))
	b := create(t, h, spec())
	killed := func(oom bool) *sandbox.Result {
		p := begin(t, b, "kill -9 $$")
		if oom {
			rt.ooms.Add(1)
		}
		return wait(t, b, p)
	}
	if res := killed(false); res.Outcome != sandbox.Signaled {
		t.Errorf("killed by itself: %+v", res)
	}
	res := killed(true)
	if res.Outcome != sandbox.OOM || !strings.Contains(res.Reason, "memory limit") {
		t.Errorf("killed by the host: %+v", res)
	}
	again := &sandbox.Result{ExecID: res.ExecID, Outcome: sandbox.Signaled, Signal: 9}
	if b.Judge(t.Context(), again); again.Outcome != sandbox.OOM {
		t.Errorf("asked again: %+v", again)
	}
	other := &sandbox.Result{ExecID: "another", Outcome: sandbox.Signaled, Signal: 9}
	if b.Judge(t.Context(), other); other.Outcome != sandbox.Signaled {
		t.Errorf("another process's: %+v", other)
	}
}

// A wait that is broken off leaves the command alone.
func TestWaitIsBrokenOff(t *testing.T) {
	h, _ := open(t, newMachine(t))
	b := create(t, h, spec())
	p := begin(t, b, "until [ -f /workspace/go ]; do sleep 0.01; done; exit 4")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := b.Wait(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	wait(t, b, begin(t, b, "echo >/workspace/go"))
	if res := wait(t, b, p); res.ExitCode != 4 {
		t.Errorf("got %+v", res)
	}
}

// What a caller says counts more than an alias, and that more than the image.
func TestSpec(t *testing.T) {
	r := live.Request{Image: "vana-agent-sandbox", Env: []string{"CI=0"}}
	r.ApplyAlias()
	if r.Image != "workbench" || r.User != "appuser" || !slices.Equal(r.Own, image.OwnedDirs) || !slices.Contains(r.Env, "CI=1") || r.Env[len(r.Env)-1] != "CI=0" {
		t.Errorf("got %+v", r)
	}
	img := image.Image{Path: "/p", Digest: "d"}
	img.Config.User, img.Config.Workdir, img.Config.Env = "image", "/image", []string{"A=image"}
	if s := r.Spec("id", img); s.User != "appuser" || s.Env[0] != "A=image" || s.Image.Path != "/p" || s.ImageName != "workbench" {
		t.Errorf("got %+v", s)
	}
	if s := (&live.Request{}).Spec("id", img); s.User != "image" || s.Workdir != "/image" {
		t.Errorf("got %+v", s)
	}
	r = live.Request{Image: "vana-agent-sandbox", User: "root"}
	if r.ApplyAlias(); r.User != "root" || r.Own != nil {
		t.Errorf("got %+v", r)
	}
}
