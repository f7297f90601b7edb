package manager_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestStopAndStart(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{Env: []string{"X=kept"}})
	d.sh(sb.UID, "echo data > /workspace/f")
	e, err := d.StartExec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "sleep infinity"}, nothing, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that is stopped stays so
		got, err := d.Stop(t.Context(), acme, sb.UID)
		if err != nil || got.Status != sandbox.Stopped || got.Stopped.IsZero() {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if res, err := e.Wait(t.Context()); err != nil || res.Outcome != sandbox.Lost || !strings.Contains(res.Reason, "stopped") {
		t.Errorf("the command that ran: %+v, %v", res, err)
	}
	_, err = d.Exec(t.Context(), acme, sb.UID, sandbox.Command{Shell: "true"}, nil, "")
	var state *sandbox.StateError
	if !errors.As(err, &state) || state.Text != "Sandbox is not running" || state.Status != sandbox.Stopped || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a command in a stopped sandbox: %v", err)
	}
	d.close()
	d = r.open() // it stays stopped over a restart
	for range 2 {
		if got, err := d.Start(t.Context(), acme, sb.UID); err != nil || got.Status != sandbox.Live {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if again := d.get(sb.UID); again.Epoch <= sb.Epoch {
		t.Errorf("the sessions have the epochs %d and %d", sb.Epoch, again.Epoch)
	}
	if res := d.sh(sb.UID, "cat /workspace/f; echo $FROM $X"); string(res.Stdout) != "data\nimage kept\n" {
		t.Errorf("got %+v", res)
	}
}

// What fails leaves the sandbox in a state that it can be used from.
func TestFailedTransitions(t *testing.T) {
	r := newRig(t)
	d := r.open()
	boom := errors.New("boom")
	sb := d.create(sandbox.CreateRequest{})
	d.life.failing("stop", boom)
	if _, err := d.Stop(t.Context(), acme, sb.UID); !errors.Is(err, boom) {
		t.Errorf("stop: %v", err)
	}
	if got := d.get(sb.UID); got.Status != sandbox.Live || !strings.Contains(got.ReasonText, "could not be stopped") || strings.Contains(got.ReasonText, "boom") {
		t.Errorf("got %+v", got)
	}
	d.sh(sb.UID, "true")
	d.life.failing("stop", nil)
	if _, err := d.Stop(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"start", "attach", "start done"} {
		d.life.failing(step, boom)
		if _, err := d.Start(t.Context(), acme, sb.UID); !errors.Is(err, boom) {
			t.Errorf("%s: %v", step, err)
		}
		if got := d.get(sb.UID); got.Status != sandbox.Stopped {
			t.Errorf("%s: got %+v", step, got)
		}
		d.life.failing(step, nil)
	}
	if _, err := d.Start(t.Context(), acme, sb.UID); err != nil {
		t.Fatal(err)
	}
	d.sh(sb.UID, "true")
}

// A store that fails lets nothing half-done happen.
func TestStoreFails(t *testing.T) {
	r := newRig(t)
	d := r.open()
	for step, class := range map[string]error{
		"admit": errdefs.ErrResourceExhausted, "save running": errdefs.ErrUnavailable, "create": errdefs.ErrUnavailable,
		"create done": errdefs.ErrUnavailable, "start": errdefs.ErrInternal, "attach": errdefs.ErrInternal,
	} {
		d.life.failing(step, class)
		if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{Name: "n"}, "key"); !errors.Is(err, class) {
			t.Errorf("%s: %v", step, err)
		}
		d.life.failing(step, nil)
		if page, err := d.List(t.Context(), acme, sandbox.Filter{}); err != nil || len(page.Items) != 0 || len(r.inHost()) != 0 || d.life.held != 0 {
			t.Errorf("%s: left are %+v, %v, %d images; %v", step, page.Items, r.inHost(), d.life.held, err)
		}
	}
	sb := d.create(sandbox.CreateRequest{Name: "n"})
	d.life.failing("save stopping", errdefs.ErrUnavailable)
	d.life.failing("save destroying", errdefs.ErrUnavailable)
	if _, err := d.Stop(t.Context(), acme, sb.UID); !errdefs.IsUnavailable(err) {
		t.Errorf("stop: %v", err)
	}
	d.sh(sb.UID, "true")
	if err := d.Destroy(t.Context(), acme, sb.UID); !errdefs.IsUnavailable(err) || len(r.inHost()) != 1 {
		t.Errorf("destroy: %v", err)
	}
	// A full disk does not keep from what makes room on it.
	d.life.failing("save destroying", errdefs.ErrResourceExhausted)
	d.life.failing("bury", errdefs.ErrResourceExhausted)
	if err := d.Destroy(t.Context(), acme, sb.UID); err != nil || len(r.inHost()) != 0 {
		t.Errorf("destroy: %v", err)
	}
	if all, err := d.store.Sandboxes(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("recorded are %v, %v", all, err)
	}
}
