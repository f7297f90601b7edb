package manager_test

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// A sandbox that is stopped although the back end said it failed is stopped; one
// that is of no use any more says so and can be destroyed.
func TestUnusable(t *testing.T) {
	r := newRig(t)
	d := r.open()
	boom := errors.New("boom")
	d.makeA()
	d.life.failing("stop done", boom)
	if _, err := d.Stop(t.Context(), acme, "a"); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if got := d.get("a"); got.Status != sandbox.Stopped {
		t.Errorf("got %+v", got)
	}
	d.life.failing("stop done", nil)
	d.must(d.Start(t.Context(), acme, "a"))
	d.life.failing("stop", boom)
	d.life.hook("stop", func() {
		if err := r.host.Kill(d.get("a").UID, sandbox.ReasonCrashed, ""); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Stop(t.Context(), acme, "a"); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if got := d.get("a"); got.Status != sandbox.Failed || got.Reason != sandbox.ReasonFailure || got.ReasonText == "" {
		t.Errorf("got %+v", got)
	}
	for name, f := range map[string]func() error{
		"start": func() error { _, err := d.Start(t.Context(), acme, "a"); return err },
		"stop":  func() error { _, err := d.Stop(t.Context(), acme, "a"); return err },
		"use":   func() error { _, err := d.Acquire(t.Context(), acme, "a"); return err },
	} {
		if err := f(); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.kill()
	d = r.open()
	if n := d.Counts(); len(n) != 1 || n[sandbox.Failed] != 1 {
		t.Errorf("counts are %v", n)
	}
	if err := d.Destroy(t.Context(), acme, "a"); err != nil || len(r.inHost()) != 0 {
		t.Errorf("%v, left is %v", err, r.inHost())
	}
}

// What the store could not record is found out by the next call.
func TestUnrecorded(t *testing.T) {
	d := newRig(t).open()
	d.makeA()
	d.life.failing("save stopped", errdefs.ErrUnavailable)
	if _, err := d.Stop(t.Context(), acme, "a"); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	if _, err := d.Start(t.Context(), acme, "a"); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	d.life.failing("save stopped", nil)
	d.must(d.Start(t.Context(), acme, "a"))
	if res := d.sh("a", "cat /workspace/f"); string(res.Stdout) != "a" {
		t.Errorf("got %+v", res)
	}
	d.must(d.Stop(t.Context(), acme, "a"))
	d.life.failing("save running", errdefs.ErrUnavailable)
	d.life.failing("save stopped", errdefs.ErrUnavailable)
	if _, err := d.Start(t.Context(), acme, "a"); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	d.life.failing("save running", nil)
	d.life.failing("save stopped", nil)
	if got, err := d.Stop(t.Context(), acme, "a"); err != nil || got.Status != sandbox.Stopped {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDestroyAll(t *testing.T) {
	r := newRig(t)
	d := r.open()
	d.makeA()
	if _, err := d.Create(t.Context(), sandbox.Caller{Owner: "other"}, sandbox.CreateRequest{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := d.DestroyAll(t.Context()); err != nil || len(r.inHost()) != 0 {
		t.Errorf("%v, left is %v", err, r.inHost())
	}
	d.wantGone("a", sandbox.ReasonDestroyed)
}

// A daemon that ends undoes what it was making, lets go of the rest, and says so
// to those who still ask.
func TestCloseDuringCreate(t *testing.T) {
	r := newRig(t)
	d := r.open()
	d.makeA()
	closed := make(chan struct{})
	d.life.hook("create", func() {
		d.life.hook("create", func() {})
		go func() {
			defer close(closed)
			d.close()
		}()
		until(t, "it ends", func() bool {
			_, err := d.Stop(t.Context(), acme, "a")
			return errdefs.IsUnavailable(err)
		})
	})
	if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Name: "b"}, ""); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	<-closed
	if _, err := d.Exec(t.Context(), acme, "a", sandbox.Command{Shell: "true"}, nil, ""); !errdefs.IsUnavailable(err) {
		t.Errorf("a command: %v", err)
	}
	d = r.open()
	if got := r.agree(d); len(got) != 1 || got["a"] == "" {
		t.Errorf("got %v", got)
	}
}

// What has an alias as its image is what the alias promises. With a user of the
// request's own no directories are given away, which needs a real shell.
func TestImageAlias(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{Image: "agentbox-sandbox", User: "root", Env: []string{"X=1"}})
	if sb.Image != "default" || sb.User != "root" || sb.Workdir != "/workspace" || sb.Env[len(sb.Env)-1] != "X=1" {
		t.Errorf("got %+v", sb)
	}
}

func TestTerminal(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	var out buffer
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Argv: []string{"sh"}, TTY: true, Cols: 80, Rows: 24}, client.Output{Stdout: &out}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Resize(100, 30), d.ResizeExec(t.Context(), acme, sb.UID, e.ID(), 120, 40)); err != nil {
		t.Error(err)
	}
	if err := e.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(context.WithoutCancel(t.Context())); err != nil || res.Outcome != sandbox.Canceled {
		t.Errorf("got %+v, %v", res, err)
	}
}
