package manager_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// bubble runs a test on a clock of its own, which stands while anything is done.
// The multiplexer keeps timers in a pool of the process, and those of one clock
// can't be used under another: the second collection of garbage empties pools.
func bubble(t *testing.T, f func(*testing.T)) {
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, f)
}

func idle(d time.Duration) sandbox.CreateRequest { return sandbox.CreateRequest{IdleTimeout: d} }

// alive tells whether it is there, and that for as long as f took.
func (d *daemon) alive(id string) bool {
	synctest.Wait()
	_, err := d.Get(d.t.Context(), acme, id)
	return err == nil
}

// wantEnd checks that a sandbox lives until then and not longer.
func (d *daemon) wantEnd(id string, at time.Time, why sandbox.Reason) {
	d.t.Helper()
	time.Sleep(time.Until(at) - time.Millisecond)
	if !d.alive(id) {
		d.t.Errorf("it is gone before %v", at)
		return
	}
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	d.wantGone(id, why)
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

func TestIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		sb := d.create(idle(5 * time.Second))
		// Looking at it is no activity.
		for range 4 {
			time.Sleep(time.Second)
			d.get(sb.UID)
			if _, err := d.Execs(t.Context(), acme, sb.UID); err != nil {
				t.Fatal(err)
			}
			if _, _, err := d.Ports(t.Context(), acme, sb.UID); err != nil {
				t.Fatal(err)
			}
			if _, err := d.List(t.Context(), acme, sandbox.Filter{}); err != nil {
				t.Fatal(err)
			}
		}
		d.wantEnd(sb.UID, in(time.Second), sandbox.ReasonIdle)
		if len(r.inHost()) != 0 {
			t.Errorf("left is %v", r.inHost())
		}
	})
}

func TestActivity(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, d *daemon, id string){
		"command": func(_ *testing.T, d *daemon, id string) { d.sh(id, "sleep 20") },
		"background command": func(t *testing.T, d *daemon, id string) {
			if _, err := d.StartExec(t.Context(), acme, id, sandbox.Command{Shell: "sleep 20", Background: true}, nothing, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		},
		"command whose client left": func(t *testing.T, d *daemon, id string) {
			e, err := d.StartExec(t.Context(), acme, id, sandbox.Command{Shell: "sleep 20", OnDisconnect: sandbox.Keep}, nothing, "")
			if err != nil {
				t.Fatal(err)
			}
			e.Abandon()
			time.Sleep(20 * time.Second)
		},
		"lease": func(t *testing.T, d *daemon, id string) {
			l, err := d.Acquire(t.Context(), acme, id)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			time.Sleep(20 * time.Second)
		},
		"connection": func(t *testing.T, d *daemon, id string) {
			if _, err := d.StartExec(t.Context(), acme, id, sandbox.Command{Shell: "echod 80 & sleep 1", Background: true}, nothing, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			c, err := d.Dial(t.Context(), acme, id, 80)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(18 * time.Second)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := newRig(t).open()
				sb := d.create(idle(5 * time.Second))
				time.Sleep(4 * time.Second)
				use(t, d, sb.UID)
				if !d.alive(sb.UID) {
					t.Fatal("it is gone in the middle")
				}
				d.wantEnd(sb.UID, in(5*time.Second), sandbox.ReasonIdle)
			})
		})
	}
}

func TestLifetime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newRig(t).open()
		sb := d.create(sandbox.CreateRequest{Lifetime: time.Minute})
		e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity"}, nothing, "")
		if err != nil {
			t.Fatal(err)
		}
		d.wantEnd(sb.UID, in(time.Minute), sandbox.ReasonLifetime)
		if res, err := e.Wait(t.Context()); err != nil || res.Outcome != sandbox.Lost || res.Reason != "the sandbox ended: lifetime" {
			t.Errorf("its command ended as %+v, %v", res, err)
		}
	})
}

func TestChangedLifetime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newRig(t).open()
		longer := d.create(sandbox.CreateRequest{Lifetime: time.Minute})
		shorter := d.create(sandbox.CreateRequest{Lifetime: time.Hour})
		never := d.create(sandbox.CreateRequest{Lifetime: sandbox.Never, IdleTimeout: sandbox.Never})
		set := func(id string, l time.Duration) {
			if _, err := d.Update(t.Context(), acme, id, sandbox.Update{Lifetime: &l}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		changed := time.Now()
		set(longer.UID, time.Minute)
		set(shorter.UID, 30*time.Second)
		d.wantEnd(shorter.UID, changed.Add(30*time.Second), sandbox.ReasonLifetime)
		d.wantEnd(longer.UID, changed.Add(time.Minute), sandbox.ReasonLifetime)
		time.Sleep(sandbox.DefaultLifetime + time.Hour)
		if !d.alive(never.UID) {
			t.Error("the one without an end is gone")
		}
	})
}

func TestIdleStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newRig(t).open()
		req := idle(5 * time.Second)
		req.OnIdle, req.Lifetime = sandbox.IdleStop, time.Hour
		sb := d.create(req)
		d.sh(sb.UID, "echo kept > /workspace/f")
		for _, step := range []string{"stop", "save stopping"} {
			d.life.failing(step, errors.New("not now"))
			time.Sleep(6 * time.Second)
			synctest.Wait()
			d.sh(sb.UID, "true") // it could not be stopped, so it can be used
			d.life.failing(step, nil)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := d.get(sb.UID); got.Status != sandbox.Stopped || got.Reason != sandbox.ReasonIdle {
			t.Fatalf("got %+v", got)
		}
		time.Sleep(time.Minute)
		if _, err := d.Start(t.Context(), acme, sb.UID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // the start was activity
		if res := d.sh(sb.UID, "cat /workspace/f"); string(res.Stdout) != "kept\n" {
			t.Errorf("got %+v", res)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := d.get(sb.UID); got.Status != sandbox.Stopped {
			t.Errorf("got %+v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		d.wantGone(sb.UID, sandbox.ReasonLifetime)
	})
}

// Deadlines go on over a restart, and while no daemon runs.
func TestDeadlinesOverRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		start := time.Now()
		aged := d.create(sandbox.CreateRequest{Lifetime: time.Minute})
		idler := d.create(idle(50 * time.Second))
		busy := d.create(idle(50 * time.Second))
		if _, err := d.StartExec(t.Context(), acme, busy.UID, sandbox.Command{Shell: "sleep 100", Background: true}, nothing, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		d.kill()
		time.Sleep(15 * time.Second)
		d = r.open()
		if got := d.get(busy.UID); got.Status != sandbox.Live {
			t.Errorf("got %+v", got)
		}
		d.wantEnd(idler.UID, start.Add(50*time.Second), sandbox.ReasonIdle)
		d.wantEnd(aged.UID, start.Add(time.Minute), sandbox.ReasonLifetime)
		d.wantEnd(busy.UID, start.Add(150*time.Second), sandbox.ReasonIdle) // 50 s after its command
	})
}

// A clock that was set back while no daemon ran gives nobody more time than they
// were given.
func TestClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{Lifetime: time.Minute})
		other := d.create(idle(time.Minute))
		d.close()
		d = r.open()
		for _, rec := range []sandbox.Sandbox{d.get(sb.UID), d.get(other.UID)} {
			if !rec.Expires.IsZero() {
				rec.Expires = rec.Expires.Add(24 * time.Hour)
			}
			rec.LastActivity = rec.LastActivity.Add(24 * time.Hour)
			if err := d.store.Save(t.Context(), rec, nil); err != nil {
				t.Fatal(err)
			}
		}
		d.kill()
		d = r.open()
		time.Sleep(59 * time.Second)
		if !d.alive(sb.UID) || !d.alive(other.UID) {
			t.Error("gone before its time")
		}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		d.wantGone(sb.UID, sandbox.ReasonLifetime)
		d.wantGone(other.UID, sandbox.ReasonIdle)
	})
}

func TestTombstonesPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newRig(t).open()
		sb := d.create(sandbox.CreateRequest{})
		if err := d.Destroy(t.Context(), acme, sb.UID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(23 * time.Hour)
		d.wantGone(sb.UID, sandbox.ReasonDestroyed)
		time.Sleep(2 * time.Hour)
		var gone *sandbox.GoneError
		if _, err := d.Get(t.Context(), acme, sb.UID); !errdefs.IsNotFound(err) || errors.As(err, &gone) {
			t.Errorf("after a day: %v", err)
		}
	})
}

// A removal that fails is tried again, by itself.
func TestRemovalIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{Lifetime: time.Minute})
		d.life.failing("destroy", errors.New("busy"))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := d.get(sb.UID); got.Status != sandbox.Destroying || got.Reason != sandbox.ReasonLifetime {
			t.Fatalf("got %+v", got)
		}
		if _, err := d.Exec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "true"}, nil, ""); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("got %v", err)
		}
		d.life.failing("destroy", nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		d.wantGone(sb.UID, sandbox.ReasonLifetime)
		if len(r.inHost()) != 0 {
			t.Errorf("left is %v", r.inHost())
		}
	})
}
