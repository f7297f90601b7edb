package manager_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
)

// limitsInHost are the limits that the machine enforces.
func (r *rig) limitsInHost(id string) sandbox.Limits {
	r.t.Helper()
	rt := r.host.Open()
	defer rt.Close()
	all, err := rt.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range all {
		if i.ID == id {
			return i.Limits
		}
	}
	r.t.Fatalf("the machine has no %s", id)
	return sandbox.Limits{}
}

// TestResize: limits change under a command that goes on, and hold over a stop
// and the daemon's death.
func TestResize(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	heard := &strings.Builder{}
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"cat"}, Stdin: true, OnDisconnect: sandbox.Keep}, client.Output{Stdout: heard}, "")
	if err != nil {
		t.Fatal(err)
	}
	got := d.must(d.Update(t.Context(), acme, sb.UID, sandbox.Update{Limits: sandbox.Limits{Memory: sandbox.GiB, Pids: 8}}))
	want := sb.Limits
	want.Memory, want.Pids = sandbox.GiB, 8
	if got.Limits != want || r.limitsInHost(sb.UID) != want {
		t.Errorf("limits are %+v, on the machine %+v", got.Limits, r.limitsInHost(sb.UID))
	}
	if _, err := io.WriteString(e.Stdin(), "on and on"); err != nil {
		t.Error(err)
	}
	if err := e.Stdin().Close(); err != nil {
		t.Error(err)
	}
	if res, err := e.Wait(t.Context()); err != nil || heard.String() != "on and on" {
		t.Errorf("a command that ran meanwhile: %+v %q %v", res, heard, err)
	}
	d.fillPids(sb.UID, 8)
	d.must(d.Stop(t.Context(), acme, sb.UID))
	want.Pids = 10
	if got := d.must(d.Update(t.Context(), acme, sb.UID, sandbox.Update{Limits: sandbox.Limits{Pids: 10}})); got.Limits != want {
		t.Errorf("stopped: %+v", got.Limits)
	}
	d.must(d.Start(t.Context(), acme, sb.UID))
	d.kill()
	d = r.open()
	if d.get(sb.UID).Limits != want || r.limitsInHost(sb.UID) != want {
		t.Errorf("after a restart: %+v, on the machine %+v", d.get(sb.UID).Limits, r.limitsInHost(sb.UID))
	}
	d.fillPids(sb.UID, 10)
}

// fillPids starts commands until none can be and wants that to be so many.
func (d *daemon) fillPids(id string, want int) {
	d.t.Helper()
	for n := 0; n <= want; n++ {
		e, err := d.StartExec(d.t.Context(), acme, id, sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true}, nothing, "")
		if err == nil {
			info, e := d.ExecInfo(d.t.Context(), acme, id, e.ID(), false)
			if e == nil && info.Result.Outcome == sandbox.Running {
				continue
			}
			err = errors.Join(e, errors.New("it did not start"))
		}
		if n != want {
			d.t.Errorf("%d commands run, want %d: %v", n, want, err)
		}
		return
	}
	d.t.Errorf("more than %d commands run", want)
}

func TestResizeRefuses(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	update := func(l sandbox.Limits) error {
		_, err := d.Update(t.Context(), acme, sb.UID, sandbox.Update{Limits: l})
		return err
	}
	for field, l := range map[string]sandbox.Limits{"memory": {Memory: 65 * sandbox.GiB}, "pids": {Pids: 1}} {
		var inv *sandbox.InvalidError
		if err := update(l); !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, l := range []sandbox.Limits{{Disk: sandbox.GiB}, {Shm: sandbox.MiB}, {CPUs: 1}} { // cpus can't be enforced here
		if err := update(l); !errdefs.IsNotImplemented(err) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	busy := sandbox.Refuse(errdefs.ErrFailedPrecondition, "it is in use")
	d.life.failing("resize", busy)
	if err := update(sandbox.Limits{Memory: sandbox.GiB}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a back end that refuses: %v", err)
	}
	d.life.failing("resize", nil)
	if got := d.get(sb.UID); got.Limits != sb.Limits || r.limitsInHost(sb.UID) != sb.Limits || len(got.Require) != 0 {
		t.Errorf("what was refused left %+v, required %v", got.Limits, got.Require)
	}
	if n := d.updates(sb.UID); n != 0 {
		t.Errorf("what was refused left %d events of updates", n)
	}
	if err := update(sandbox.Limits{Memory: sandbox.GiB}); err != nil || d.updates(sb.UID) != 1 {
		t.Errorf("a change: %v, %d events of updates", err, d.updates(sb.UID))
	}
}

// TestResizeKilled: whatever the moment, record and machine agree afterwards.
func TestResizeKilled(t *testing.T) {
	for step, alive := 1, false; !alive; step++ {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{})
		d.life.dieIn(step)
		_, err := d.Update(t.Context(), acme, sb.UID, sandbox.Update{Limits: sandbox.Limits{Memory: sandbox.GiB}})
		alive = err == nil && !d.life.isDead()
		d.kill()
		d = r.open()
		got := d.get(sb.UID).Limits
		if got != r.limitsInHost(sb.UID) || err == nil && got.Memory != sandbox.GiB {
			t.Errorf("killed at step %d, %v: recorded are %+v, on the machine %+v", step, err, got, r.limitsInHost(sb.UID))
		}
		d.close()
		if step > 50 {
			t.Fatal("it dies always")
		}
	}
}

func (l *life) setMuted(muted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = muted
}

type mutableConn struct {
	net.Conn
	l *life
}

func (c *mutableConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.l.mu.Lock()
		muted := c.l.muted
		c.l.mu.Unlock()
		if err != nil || !muted {
			return n, err
		}
	}
}

// An agent that does not answer has the limits of before again: it may have taken
// those that were taken back.
func TestResizeWithoutAnswer(t *testing.T) {
	manager.Impatient(t)
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Limits: sandbox.Limits{Pids: 12}})
	d.life.setMuted(true)
	_, err := d.Update(t.Context(), acme, sb.UID, sandbox.Update{Limits: sandbox.Limits{Pids: 8}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	d.life.setMuted(false)
	if got := d.get(sb.UID).Limits; got != sb.Limits || r.limitsInHost(sb.UID) != got {
		t.Errorf("recorded are %+v, on the machine %+v", got, r.limitsInHost(sb.UID))
	}
	d.fillPids(sb.UID, 12)
}

// updates are how many events of updates a sandbox has.
func (d *daemon) updates(id string) (n int) {
	d.t.Helper()
	all, err := d.store.Events(d.t.Context(), id, 0, sandbox.MaxEvents)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, ev := range all {
		if ev.Type == sandbox.EventUpdate {
			n++
		}
	}
	return n
}
