package manager_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// agree checks that a daemon which has just been started and the machine have the
// same sandboxes in the same states, and returns the states by name.
func (r *rig) agree(d *daemon) map[string]sandbox.State {
	r.t.Helper()
	page, err := d.List(r.t.Context(), acme, sandbox.Filter{})
	if err != nil {
		r.t.Fatal(err)
	}
	host, names := r.inHost(), map[string]sandbox.State{}
	for _, sb := range page.Items {
		if host[sb.UID] != sb.Status || sb.Status != sandbox.Live && sb.Status != sandbox.Stopped {
			r.t.Errorf("%s is %s, and in the machine %q", sb.Name, sb.Status, host[sb.UID])
		}
		delete(host, sb.UID)
		names[sb.Name] = sb.Status
		if sb.Status != sandbox.Live {
			continue
		}
		if res, err := d.Exec(r.t.Context(), acme, sb.UID, sandbox.Command{Shell: "cat /workspace/f"}, nil, ""); err != nil {
			r.t.Errorf("%s can't be used: %v", sb.Name, err)
		} else if out := string(res.Stdout); out != "" && out != sb.Name {
			r.t.Errorf("%s has the file of %q", sb.Name, out)
		}
	}
	if len(host) != 0 {
		r.t.Errorf("nobody knows of %v", host)
	}
	return names
}

// A daemon that is killed at any step of an operation is followed by one that
// finds all of it done or nothing.
func TestKilledAtEveryStep(t *testing.T) {
	type states = []sandbox.State
	gone := sandbox.State("")
	for _, op := range []struct {
		name          string
		before        func(d *daemon)
		do            func(d *daemon) error
		allowed, done states // after a kill, after success
	}{
		{
			"create", func(*daemon) {},
			func(d *daemon) error {
				_, err := d.Create(d.t.Context(), acme, sandbox.CreateRequest{Name: "a"}, "k")
				return err
			},
			states{gone, sandbox.Live}, states{sandbox.Live},
		},
		{
			"destroy", func(d *daemon) { d.makeA() },
			func(d *daemon) error { return d.Destroy(d.t.Context(), acme, "a") },
			states{gone, sandbox.Live}, states{gone},
		},
		{
			"stop", func(d *daemon) { d.makeA() },
			func(d *daemon) error { _, err := d.Stop(d.t.Context(), acme, "a"); return err },
			states{sandbox.Stopped, sandbox.Live}, states{sandbox.Stopped},
		},
		{
			"start", func(d *daemon) { d.makeA(); d.must(d.Stop(d.t.Context(), acme, "a")) },
			func(d *daemon) error { _, err := d.Start(d.t.Context(), acme, "a"); return err },
			states{sandbox.Stopped, sandbox.Live}, states{sandbox.Live},
		},
		{
			"destroy of a stopped one", func(d *daemon) { d.makeA(); d.must(d.Stop(d.t.Context(), acme, "a")) },
			func(d *daemon) error { return d.Destroy(d.t.Context(), acme, "a") },
			states{gone, sandbox.Stopped}, states{gone},
		},
	} {
		t.Run(op.name, func(t *testing.T) {
			for n, alive := 1, false; !alive; n++ {
				t.Run(fmt.Sprint("step ", n), func(t *testing.T) {
					r := newRig(t)
					d := r.open()
					op.before(d)
					d.life.dieIn(n)
					err := op.do(d)
					alive = err == nil && !d.life.isDead()
					d.kill()
					d = r.open()
					allowed := op.allowed
					if err == nil {
						allowed = op.done
					}
					if got := r.agree(d)["a"]; !slices.Contains(allowed, got) {
						t.Errorf("after %v it is %q, not one of %q", err, got, allowed)
					}
					if op.name == "create" { // may be repeated in any case
						if sb, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Name: "a"}, "k"); err != nil || sb.Status != sandbox.Live {
							t.Errorf("again: %+v, %v", sb, err)
						}
					}
				})
				if n > 50 {
					t.Fatal("it dies always")
				}
			}
		})
	}
}

func (d *daemon) makeA() {
	d.t.Helper()
	d.create(sandbox.CreateRequest{Name: "a"})
	d.sh("a", "echo -n a > /workspace/f")
}

func (d *daemon) must(sb sandbox.Sandbox, err error) sandbox.Sandbox {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	return sb
}

// A new daemon may be killed while it takes over, too.
func TestKilledWhileTakingOver(t *testing.T) {
	for n, alive := 1, false; !alive; n++ {
		r := newRig(t)
		d := r.open()
		d.makeA()
		d.create(sandbox.CreateRequest{Name: "stopped"})
		d.must(d.Stop(t.Context(), acme, "stopped"))
		d.create(sandbox.CreateRequest{Name: "going"})
		d.life.failing("destroy", errors.New("busy"))
		if err := d.Destroy(t.Context(), acme, "going"); err == nil {
			t.Fatal("destroyed")
		}
		d.kill()
		d, err := r.tryOpen(func(l *life) { l.dieIn(n) })
		if err == nil {
			alive = !d.life.isDead()
			d.kill()
		}
		d = r.open()
		got := r.agree(d)
		if len(got) != 2 || got["a"] != sandbox.Live || got["stopped"] != sandbox.Stopped {
			t.Errorf("step %d: got %v", n, got)
		}
		d.wantGone("going", sandbox.ReasonDestroyed)
		d.close()
		if n > 50 {
			t.Fatal("it dies always")
		}
	}
}

// What ended while no daemon was there gets its tombstone, and what nobody knows
// is removed.
func TestEndedMeanwhile(t *testing.T) {
	r := newRig(t)
	d := r.open()
	oom, lost, frozen := d.create(sandbox.CreateRequest{}), d.create(sandbox.CreateRequest{}), d.create(sandbox.CreateRequest{})
	d.must(d.Stop(t.Context(), acme, frozen.UID))
	d.makeA()
	d.kill()
	if err := r.host.Kill(oom.UID, sandbox.ReasonOOM, ""); err != nil {
		t.Fatal(err)
	}
	rt := r.host.Open()
	defer rt.Close()
	for _, id := range []string{lost.UID, frozen.UID} {
		if err := rt.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	unknown := "00000000000000000000000000000000000000000000000000000000000000ff"
	if err := rt.Create(t.Context(), runtime.Spec{ID: unknown}); err != nil {
		t.Fatal(err)
	}
	d = r.open()
	d.wantGone(oom.UID, sandbox.ReasonOOM)
	d.wantGone(lost.UID, sandbox.ReasonHostRestart)
	d.wantGone(frozen.UID, sandbox.ReasonHostRestart)
	if got := r.agree(d); len(got) != 1 || d.life.held != 1 {
		t.Errorf("got %v with %d images", got, d.life.held)
	}
	if err := d.Destroy(t.Context(), acme, "a"); err != nil || d.life.held != 0 {
		t.Errorf("%v, %d images are left", err, d.life.held)
	}
}

// openSlow starts a daemon to which the first agent that it asks does not answer
// before release.
func (r *rig) openSlow() (d *daemon, release func()) {
	r.t.Helper()
	answer := make(chan struct{})
	release = sync.OnceFunc(func() { close(answer) })
	late := time.AfterFunc(time.Minute, release)
	slow := make(chan struct{}, 1)
	d = r.open(func(l *life) {
		l.hook("attach", func() {
			select {
			case slow <- struct{}{}:
				<-answer
			default:
			}
		})
	})
	r.t.Cleanup(release)
	if !late.Stop() {
		r.t.Fatal("the daemon waited for a sandbox that did not answer")
	}
	return d, release
}

// A sandbox that is slow to answer keeps nobody waiting but who uses it.
func TestBeginsWithoutTheSlow(t *testing.T) {
	r := newRig(t)
	d := r.open()
	d.makeA()
	d.kill()
	d, release := r.openSlow()
	if got := d.get("a"); got.Status != sandbox.Live {
		t.Errorf("got %+v", got)
	}
	d.create(sandbox.CreateRequest{Name: "b"})
	d.sh("b", "true")
	used := make(chan error, 1)
	go func() {
		_, err := d.Exec(t.Context(), acme, "a", sandbox.Command{Shell: "true"}, nil, "")
		used <- err
	}()
	release()
	if err := <-used; err != nil {
		t.Errorf("use it when it answers: %v", err)
	}
	r.agree(d)
}

// While nobody knows what runs in a sandbox, it is not idle.
func TestSlowIsNotIdle(t *testing.T) {
	r := newRig(t)
	d := r.open()
	d.create(sandbox.CreateRequest{Name: "slow", IdleTimeout: sandbox.MinIdleTimeout})
	if _, err := d.StartExec(t.Context(), acme, "slow", sandbox.Command{Shell: "sleep infinity", Background: true}, nothing, ""); err != nil {
		t.Fatal(err)
	}
	d.kill()
	d, release := r.openSlow()
	d.create(sandbox.CreateRequest{Name: "idle", IdleTimeout: sandbox.MinIdleTimeout})
	until(t, "an idle sandbox is gone", func() bool {
		_, err := d.Get(t.Context(), acme, "idle")
		return err != nil
	})
	release()
	d.sh("slow", "true")
}

// A sandbox that lives and can't be reached is not given up.
func TestUnreachable(t *testing.T) {
	r := newRig(t)
	d := r.open()
	d.makeA()
	d.kill()
	d = r.open(func(l *life) { l.failing("attach", errors.New("no answer")) })
	if got := d.get("a"); got.Status != sandbox.Live {
		t.Errorf("got %+v", got)
	}
	if _, err := d.Exec(t.Context(), acme, "a", sandbox.Command{Shell: "true"}, nil, ""); err == nil {
		t.Error("it was reached")
	}
	d.life.failing("attach", nil)
	r.agree(d)
}
