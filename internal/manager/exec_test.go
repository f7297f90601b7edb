package manager_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
)

var nothing = client.Output{}

// buffer is an output that tests look at while it grows.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestStreams(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	var out, errs buffer
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "echo first; read x; echo $x; echo bad >&2", Stdin: true},
		client.Output{Stdout: &out, Stderr: &errs}, "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the first line comes", func() bool { return out.String() == "first\n" })
	if err := d.WriteExec(t.Context(), acme, sb.UID, e.ID(), strings.NewReader("second\n"), true); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(t.Context())
	if err != nil || res.ShellCode() != 0 || out.String() != "first\nsecond\n" || errs.String() != "bad\n" {
		t.Errorf("got %+v, %v, %q, %q", res, err, out.String(), errs.String())
	}
	if err := d.WriteExec(t.Context(), acme, sb.UID, e.ID(), strings.NewReader("x"), true); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("input for a command that ended: %v", err)
	}
}

// A command outlives its client and the daemon; its output goes on at its offset
// and its result is given.
func TestBackground(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "echo one; until [ -f /workspace/go ]; do sleep 0.01; done; echo two; exit 4", Background: true}, nothing, "")
	if err != nil {
		t.Fatal(err)
	}
	id := e.ID()
	done := d.sh(sb.UID, "echo result; exit 7").ExecID
	var out buffer
	until(t, "there is output", func() bool {
		info, err := d.ExecInfo(t.Context(), acme, sb.UID, id, false)
		if err != nil {
			t.Fatal(err)
		}
		return info.StdoutEnd == 4
	})
	if err := d.Output(t.Context(), acme, sb.UID, id, manager.Stdout, 1, false, &out); err != nil || out.String() != "ne\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	var off *manager.OffsetError
	if err := d.Output(t.Context(), acme, sb.UID, id, manager.Stdout, 5, false, &out); !errors.As(err, &off) || off.End != 4 || !errdefs.IsOutOfRange(err) {
		t.Errorf("an offset that is not there yet: %v", err)
	}
	d.kill()
	d = r.open()
	if again := d.get(sb.UID); again.Epoch <= sb.Epoch {
		t.Errorf("the sessions have the epochs %d and %d", sb.Epoch, again.Epoch)
	}
	if info, err := d.ExecInfo(t.Context(), acme, sb.UID, done, true); err != nil || info.Result.ExitCode != 7 || string(info.Result.Stdout) != "result\n" {
		t.Errorf("a result of before: %+v, %v", info, err)
	}
	if res := d.sh(sb.UID, "touch /workspace/go"); res.ShellCode() != 0 {
		t.Fatalf("%s", res.Stderr)
	}
	var rest buffer
	if err := d.Output(t.Context(), acme, sb.UID, id, manager.Stdout, 4, true, &rest); err != nil || rest.String() != "two\n" {
		t.Errorf("got %q, %v", rest.String(), err)
	}
	info, err := d.WaitExec(t.Context(), acme, sb.UID, id, 0, true)
	if err != nil || info.Result.ExitCode != 4 || string(info.Result.Stdout) != "one\ntwo\n" {
		t.Errorf("got %+v, %v", info, err)
	}
	if all, err := d.Execs(t.Context(), acme, sb.UID); err != nil || len(all) != 3 {
		t.Errorf("got %+v, %v", all, err)
	}
}

// Who waits for a command and goes away finds its result under its id.
func TestWaiterGoes(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := d.Exec(ctx, acme, sb.UID, sandbox.Command{Shell: "until [ -f /workspace/go ]; do sleep 0.01; done; echo end"}, nil, "")
		failed <- err
	}()
	var id string
	until(t, "it runs", func() bool {
		all, err := d.Execs(t.Context(), acme, sb.UID)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			id = all[0].ID
		}
		return id != ""
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	d.sh(sb.UID, "touch /workspace/go")
	if info, err := d.WaitExec(t.Context(), acme, sb.UID, id, 0, true); err != nil || string(info.Result.Stdout) != "end\n" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestSignalAndTimeout(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"sleep", "infinity"}}, nothing, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SignalExec(t.Context(), acme, sb.UID, e.ID(), 15, false); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(t.Context()); err != nil || res.Outcome != sandbox.Signaled || res.Signal != 15 {
		t.Errorf("got %+v, %v", res, err)
	}
	res, err := d.Exec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "echo part; sleep infinity", Timeout: 100 * time.Millisecond}, nil, "")
	if err != nil || res.Outcome != sandbox.TimedOut || string(res.Stdout) != "part\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if err := d.SignalExec(t.Context(), acme, sb.UID, "none", 15, false); !errdefs.IsNotFound(err) {
		t.Errorf("no such command: %v", err)
	}
}

func TestPolicyOfCommands(t *testing.T) {
	r := newRig(t)
	r.policy.ExecTimeout, r.policy.MaxExecTimeout = 100*time.Millisecond, time.Hour
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	if res := d.sh(sb.UID, "sleep infinity"); res.Outcome != sandbox.TimedOut {
		t.Errorf("without a timeout: %+v", res)
	}
	for _, wrong := range []time.Duration{2 * time.Hour, 1 << 62} {
		_, err := d.Exec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "true", Timeout: wrong}, nil, "")
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != "timeout" {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	// B056: a command in the background does not end by the default.
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity", Background: true}, nothing, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := d.WaitExec(t.Context(), acme, sb.UID, e.ID(), 300*time.Millisecond, false)
	if err != nil || info.Result.Outcome != sandbox.Running {
		t.Errorf("in the background: %+v, %v", info, err)
	}
}

// A session that breaks while the sandbox lives is replaced at the next use.
func TestBrokenSession(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	for range 3 {
		l, err := d.Acquire(t.Context(), acme, sb.UID)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Session().Close(); err != nil {
			t.Fatal(err)
		}
		l.Release()
		if res := d.sh(sb.UID, "echo again"); string(res.Stdout) != "again\n" {
			t.Errorf("got %+v", res)
		}
	}
	if got := d.get(sb.UID); got.Epoch != 4 {
		t.Errorf("the epoch is %d", got.Epoch)
	}
}

func TestPortsAndFiles(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	if _, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"echod", "8080"}, Background: true}, nothing, ""); err != nil {
		t.Fatal(err)
	}
	until(t, "the server listens", func() bool {
		list, _, err := d.Ports(t.Context(), acme, sb.UID)
		return err == nil && len(list) == 1 && list[0].Addr.Port() == 8080
	})
	c, err := d.Dial(t.Context(), acme, sb.UID, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	back := make([]byte, 5)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
		t.Errorf("got %q, %v", back, err)
	}
	if _, err := d.Dial(t.Context(), acme, sb.UID, 8081); !errdefs.IsUnavailable(err) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := d.Acquire(t.Context(), acme, sb.UID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := l.Session().WriteFile(t.Context(), "/workspace/f", strings.NewReader("text"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if res := d.sh(sb.UID, "cat /workspace/f"); string(res.Stdout) != "text" {
		t.Errorf("got %+v", res)
	}
}

// A command that the host's out-of-memory killer took is told as such, whether
// somebody waited for it or asks later; one that somebody else killed is not.
func TestOutOfMemory(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	run := func(c sandbox.Command) string {
		c.Argv = []string{"sleep", "infinity"}
		e, err := d.StartExec(t.Context(), acme, sb.UID, c, nothing, "")
		if err != nil {
			t.Fatal(err)
		}
		if !c.Background {
			t.Cleanup(func() {
				if res, err := e.Wait(context.Background()); err != nil || res.Outcome != sandbox.OOM {
					t.Errorf("who waited: %+v, %v", res, err)
				}
			})
		}
		return e.ID()
	}
	kill := func(id string) client.ExecInfo {
		if err := d.SignalExec(t.Context(), acme, sb.UID, id, 9, false); err != nil {
			t.Fatal(err)
		}
		info, err := d.WaitExec(t.Context(), acme, sb.UID, id, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if info := kill(run(sandbox.Command{Background: true})); info.Result.Outcome != sandbox.Signaled {
		t.Errorf("a common kill is %+v", info.Result)
	}
	for _, c := range []sandbox.Command{{}, {Background: true}} {
		id := run(c)
		d.life.mu.Lock()
		d.life.ooms++
		d.life.mu.Unlock()
		if info := kill(id); info.Result.Outcome != sandbox.OOM || info.Result.Reason == "" {
			t.Errorf("the host's kill is %+v", info.Result)
		}
		if info, err := d.ExecInfo(t.Context(), acme, sb.UID, id, false); err != nil || info.Result.Outcome != sandbox.OOM {
			t.Errorf("later it is %+v, %v", info.Result, err)
		}
	}
	until(t, "the events are recorded", func() bool {
		evs, err := d.Events(t.Context(), acme, sb.UID, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, ev := range evs {
			if ev.Type == sandbox.EventOOM {
				n++
			}
		}
		return n == 2
	})
	if st, err := d.Stats(t.Context(), acme, sb.UID); err != nil || st.OOMKills != 2 || st.Memory != 123 {
		t.Errorf("stats are %+v, %v", st, err)
	}
}

// A sandbox that ends by itself ends its commands with the reason and leaves a
// tombstone.
func TestDeath(t *testing.T) {
	for _, reason := range []sandbox.Reason{sandbox.ReasonOOM, sandbox.ReasonCrashed} {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{})
		e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity"}, nothing, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.host.Kill(sb.UID, reason, "in the test"); err != nil {
			t.Fatal(err)
		}
		want := sandbox.Lost
		if reason == sandbox.ReasonOOM {
			want = sandbox.OOM
		}
		if res, err := e.Wait(t.Context()); err != nil || res.Outcome != want || res.Reason == "" {
			t.Errorf("got %+v, %v", res, err)
		}
		until(t, "nothing is left", func() bool { return len(r.inHost()) == 0 })
		until(t, "it is buried", func() bool { _, err := d.Get(t.Context(), acme, sb.UID); return err != nil })
		d.wantGone(sb.UID, reason)
	}
}

// X23: the end of a sandbox ends its commands at once, with the reason.
func TestDestroyDuringExec(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	var results []chan *sandbox.Result
	for range 5 {
		e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity"}, nothing, "")
		if err != nil {
			t.Fatal(err)
		}
		c := make(chan *sandbox.Result, 1)
		results = append(results, c)
		go func() {
			res, err := e.Wait(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Error(err)
			}
			c <- res
		}()
	}
	if err := d.Destroy(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	for _, c := range results {
		if res := <-c; res.Outcome != sandbox.Lost || !strings.Contains(res.Reason, "destroyed") {
			t.Errorf("got %+v", res)
		}
	}
}

// The operator bounds commands: what nobody says is the default, what is too
// much is refused, and what is one too many waits.
func TestCommandsAreBounded(t *testing.T) {
	r := newRig(t)
	r.policy.ExecTimeout, r.policy.MaxExecTimeout, r.policy.Output, r.policy.MaxOutput, r.policy.Execs = 100*time.Millisecond, time.Minute, 3, 5, 1
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	if res := d.sh(sb.UID, "echo hello; sleep infinity"); res.Outcome != sandbox.TimedOut || string(res.Stdout) != "hel" {
		t.Errorf("got %+v", res)
	}
	for _, cmd := range []sandbox.Command{{Shell: "true", Timeout: time.Minute + 1}, {Shell: "true", MaxOutput: 6}} {
		if _, err := d.Exec(t.Context(), acme, sb.UID, cmd, nil, ""); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", cmd, err)
		}
	}
	if _, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity", Timeout: -1, Background: true}, nothing, ""); err != nil {
		t.Fatal(err)
	}
	if res := d.sh(sb.UID, "echo its turn"); res.Outcome != sandbox.TimedOut || len(res.Stdout) > 0 {
		t.Errorf("beside another: %+v", res)
	}
}
