//go:build linux

package manager_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// TestKeepStopped: a stopped sandbox goes when its time is over, counted from its last
// stop, also by a new daemon.
func TestKeepStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{KeepStopped: time.Hour, Lifetime: 100 * time.Hour, IdleTimeout: 50 * time.Hour})
		time.Sleep(2 * time.Hour) // it runs
		d.must(d.Stop(t.Context(), acme, sb.UID))
		time.Sleep(50 * time.Minute)
		d.must(d.Start(t.Context(), acme, sb.UID))
		time.Sleep(50 * time.Minute)
		d.must(d.Stop(t.Context(), acme, sb.UID))
		time.Sleep(50 * time.Minute)
		if !d.alive(sb.UID) {
			t.Fatal("it went before its time")
		}
		d.close()
		d = r.open()
		time.Sleep(9 * time.Minute)
		if !d.alive(sb.UID) {
			t.Fatal("a new daemon gives it less time")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		d.wantGone(sb.UID, sandbox.ReasonIdle)
	})
}

// TestFailedGoes: a failed sandbox goes when a stopped one would, so that it does not
// take its owner's quota for ever.
func TestFailedGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		d := r.open()
		sb := d.create(sandbox.CreateRequest{KeepFailed: true, KeepStopped: time.Hour, Lifetime: 100 * time.Hour, IdleTimeout: 50 * time.Hour})
		kept := d.create(sandbox.CreateRequest{KeepFailed: true, Lifetime: 100 * time.Hour, IdleTimeout: 50 * time.Hour})
		time.Sleep(2 * time.Hour) // they run
		for _, uid := range []string{sb.UID, kept.UID} {
			if err := r.host.Kill(uid, sandbox.ReasonOOM, "killed"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Minute)
		if got := d.get(sb.UID); got.Status != sandbox.Failed {
			t.Fatalf("it is %s", got.Status)
		}
		d.close()
		d = r.open()
		time.Sleep(9 * time.Minute)
		if !d.alive(sb.UID) {
			t.Fatal("a new daemon gives it less time")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		d.wantGone(sb.UID, sandbox.ReasonOOM)
		if !d.alive(kept.UID) {
			t.Error("one goes of which nobody said so")
		}
	})
}

// TestKeepFailed: a sandbox that is to be kept and ended by itself is there in the
// state error, with the reason, by each way that a daemon may hear of it.
func TestKeepFailed(t *testing.T) {
	req := data("/data", false)
	req.KeepFailed = true
	for name, end := range map[string]func(r *rig, d *daemon, uid string) *daemon{
		"while the daemon runs": func(r *rig, d *daemon, uid string) *daemon {
			if err := r.host.Kill(uid, sandbox.ReasonOOM, "killed"); err != nil {
				r.t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); d.get(uid).Status != sandbox.Failed; {
				if time.Now().After(end) {
					r.t.Fatal("nobody notices")
				}
				time.Sleep(time.Millisecond)
			}
			return d
		},
		"while there is none": func(r *rig, d *daemon, uid string) *daemon {
			d.close()
			if err := r.host.Kill(uid, sandbox.ReasonOOM, "killed"); err != nil {
				r.t.Fatal(err)
			}
			return r.open()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.withVolumes()
			d := r.open()
			r.makeVolume("acme", "data")
			sb := d.create(req)
			d = end(r, d, sb.UID)
			if got := d.get(sb.UID); got.Status != sandbox.Failed || got.Reason != sandbox.ReasonOOM {
				t.Errorf("it is %s, %s", got.Status, got.Reason)
			}
			if _, err := d.Acquire(t.Context(), acme, sb.UID); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("it can be used: %v", err)
			}
			if got := r.holders("data"); len(got) != 1 {
				t.Errorf("its volume is held by %v", got)
			}
			d.close()
			d = r.open()
			if got := d.get(sb.UID); got.Status != sandbox.Failed {
				t.Errorf("for a new daemon it is %s", got.Status)
			}
			for end := time.Now().Add(time.Minute); len(r.inHost()) > 0; {
				if time.Now().After(end) {
					t.Fatalf("left on the host are %v", r.inHost())
				}
				time.Sleep(time.Millisecond)
			}
			if err := d.Destroy(t.Context(), acme, sb.UID); err != nil {
				t.Fatal(err)
			}
			if got := r.holders("data"); len(got) > 0 {
				t.Errorf("afterwards its volume is held by %v", got)
			}
		})
	}
}

// made is a request for a sandbox with a volume that is made for it.
func made() sandbox.CreateRequest {
	return sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Name: "work", Path: "/work", Make: true}}}
}

func (r *rig) volumeNames() (names []string) {
	r.t.Helper()
	all, err := r.disk.List(r.t.Context(), "acme")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}

// TestKeepUnmade: what agentbox could not make stays as failed and has nothing any
// more; what its caller is to blame for leaves nothing.
func TestKeepUnmade(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	req := made()
	req.KeepFailed = true
	d.life.failing("create", errors.New("open /var/lib/agentbox/x"))
	if _, err := d.Create(t.Context(), acme, req, ""); err == nil {
		t.Fatal("it was made")
	}
	page, err := d.List(t.Context(), acme, sandbox.Filter{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Status != sandbox.Failed || page.Items[0].Reason != sandbox.ReasonFailure {
		t.Fatalf("%+v %v", page, err)
	}
	if got := r.volumeNames(); len(got) > 0 || len(r.inHost()) > 0 {
		t.Errorf("left are %v, %v", got, r.inHost())
	}
	evs, err := d.Events(t.Context(), acme, page.Items[0].UID, 0)
	if err != nil || len(evs) == 0 || strings.Contains(fmt.Sprint(evs), "/var/lib") { // LEAK-10
		t.Errorf("its events are %+v, %v", evs, err)
	}
	if err := d.Destroy(t.Context(), acme, page.Items[0].UID); err != nil {
		t.Error(err)
	}
	for _, err := range []error{errdefs.ErrUnavailable, errdefs.ErrResourceExhausted, errdefs.ErrAlreadyExists} {
		d.life.failing("create", err)
		if _, err := d.Create(t.Context(), acme, req, ""); err == nil {
			t.Fatal("it was made")
		}
	}
	if page, err = d.List(t.Context(), acme, sandbox.Filter{}); err != nil || len(page.Items) > 0 || len(r.volumeNames()) > 0 {
		t.Errorf("%+v %v, %v", page, err, r.volumeNames())
	}
	d.life.failing("create", nil)
	r.makeVolume("acme", "work") // somebody's own of that name
	if _, err := d.Create(t.Context(), acme, req, ""); !errdefs.IsAlreadyExists(err) || len(r.volumeNames()) != 1 {
		t.Errorf("%v, left are %v", err, r.volumeNames())
	}
}

// TestVolumeWithSandbox: a volume that is made with a sandbox, and removed with it, is
// there exactly as long as one of the two says, whenever the daemon dies.
func TestVolumeWithSandbox(t *testing.T) {
	for _, what := range []string{"create", "destroy", "destroy stopped", "keep"} {
		for steps := 1; ; steps++ {
			died := false
			t.Run(fmt.Sprint(what, steps), func(t *testing.T) { died = volumeWithSandbox(t, what, steps) })
			if !died || steps > 60 {
				break
			}
		}
	}
}

func volumeWithSandbox(t *testing.T, what string, steps int) (died bool) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	var sb sandbox.Sandbox
	if what != "create" {
		sb = d.create(made())
	}
	if what == "destroy stopped" {
		d.must(d.Stop(t.Context(), acme, sb.UID))
	}
	d.life.dieIn(steps)
	switch what {
	case "create":
		_, _ = d.Create(t.Context(), acme, made(), "") // what became of it is looked at
	case "destroy":
		_ = d.DestroyWithVolume(t.Context(), acme, sb.UID, "work")
	case "destroy stopped":
		_, _ = d.DestroyStopped(t.Context(), acme, sb.UID, time.Now().Add(time.Hour), "work")
	default:
		_ = d.Destroy(t.Context(), acme, sb.UID)
	}
	died = d.life.isDead()
	d.life.dieIn(0)
	d.kill()
	d = r.open()
	page, err := d.List(t.Context(), acme, sandbox.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	volumes := r.volumeNames()
	if what == "keep" && len(volumes) != 1 {
		t.Errorf("the volume went, and nobody said so: %v", volumes)
	}
	if what != "keep" && len(volumes) != len(page.Items) {
		t.Errorf("%d sandboxes have the volumes %v", len(page.Items), volumes)
	}
	if !died && what != "create" && len(page.Items) > 0 {
		t.Errorf("it is still there: %+v", page.Items)
	}
	return died
}

// TestDestroyStopped: only what has been stopped for as long goes.
func TestDestroyStopped(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	sb := d.create(made())
	for what, before := range map[string]time.Time{"one that runs": time.Now().Add(time.Hour), "one that runs, long ago": {}} {
		if did, err := d.DestroyStopped(t.Context(), acme, sb.UID, before, "work"); did || err != nil {
			t.Errorf("%s: %v %v", what, did, err)
		}
	}
	d.must(d.Stop(t.Context(), acme, sb.UID))
	if did, err := d.DestroyStopped(t.Context(), acme, sb.UID, time.Now().Add(-time.Hour), "work"); did || err != nil {
		t.Errorf("one that was stopped just now: %v %v", did, err)
	}
	if did, err := d.DestroyStopped(t.Context(), acme, sb.UID, time.Now(), "other"); !did || err != nil || len(r.volumeNames()) != 1 {
		t.Errorf("with a volume that it does not have: %v %v, %v", did, err, r.volumeNames())
	}
}
