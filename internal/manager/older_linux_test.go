package manager_test

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// Damaged records say again what a sandbox can't be held to.
func TestF18_NotEnforced(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	r.makeVolume("acme", "data")
	req := data("/data", false)
	req.Tenant = "t"
	sb := d.create(req)
	d.kill()
	damage(t, r.path)
	d = r.open()
	got := d.get(sb.UID)
	slices.Sort(got.NotEnforced)
	slices.Sort(sb.NotEnforced)
	if !slices.Equal(got.NotEnforced, sb.NotEnforced) {
		t.Errorf("not enforced are %v, were %v", got.NotEnforced, sb.NotEnforced)
	}
	if got := r.holders("data"); !slices.Equal(got, []string{sb.UID}) {
		t.Errorf("%v hold the volume", got)
	}
}

// With an older store, a sandbox that it does not know has its name and its volume
// again, though the store says that one which is gone has them.
func TestF18_OlderStore(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	r.makeVolume("acme", "data")
	req := data("/data", false)
	req.Name = "a"
	old := d.create(req)
	d.close()
	before, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	d = r.open()
	if err := d.Destroy(t.Context(), acme, old.UID); err != nil {
		t.Fatal(err)
	}
	sb := d.create(req)
	d.close()
	if err := os.WriteFile(r.path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	d = r.open(func(l *life) {
		taken := make(chan struct{})
		l.hook("admit done", sync.OnceFunc(func() { close(taken) }))
		l.hook("bury", func() { // who takes it up before gets ahead
			select {
			case <-taken:
			case <-time.After(200 * time.Millisecond):
			}
		})
	})
	if got := d.get("a"); got.UID != sb.UID || got.Status != sandbox.Live {
		t.Errorf("got %+v, want %s", got, sb.UID)
	}
	d.wantGone(old.UID, sandbox.ReasonHostRestart)
	if got := r.holders("data"); !slices.Equal(got, []string{sb.UID}) {
		t.Errorf("%v hold the volume", got)
	}
}

// Storage that is configured no more keeps no sandbox from going.
func TestStorageIsGone(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	a, b := d.create(sandbox.CreateRequest{Tenant: "a"}), d.create(sandbox.CreateRequest{Tenant: "b"})
	d.life.failing("remove tenant", os.ErrPermission)
	if err := d.DestroyWithStorage(t.Context(), acme, a.UID); err == nil {
		t.Fatal("destroyed")
	}
	d.kill()
	r.storage = ""
	d = r.open()
	d.wantGone(a.UID, sandbox.ReasonDestroyed)
	if err := d.DestroyWithStorage(t.Context(), acme, b.UID); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("with its storage: %v", err)
	}
	if got := d.get(b.UID); got.Status != sandbox.Live {
		t.Errorf("it is %s", got.Status)
	}
	if err := d.Destroy(t.Context(), acme, b.UID); err != nil {
		t.Error(err)
	}
}
