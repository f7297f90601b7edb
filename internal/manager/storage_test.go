//go:build linux

package manager_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

// withVolumes lets the rig's daemons have volumes, as plain directories, and
// storage of tenants.
func (r *rig) withVolumes() {
	dir := r.t.TempDir()
	r.storage = filepath.Join(dir, "storage")
	r.volumes = func(s *store.Store) manager.Volumes {
		r.t.Helper()
		recs, err := s.Sandboxes(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		v, rep, err := volume.Open(context.Background(), volume.Options{
			Dir: filepath.Join(dir, "volumes"), Storage: r.storage, Records: s, Kind: sandbox.VolumeDirectory,
		}, manager.Holds(recs))
		if err != nil {
			r.t.Fatal(err)
		}
		if len(rep.Lost) > 0 && r.storage != "" || len(rep.Failed) > 0 {
			r.t.Errorf("a daemon begins with lost volumes: %+v", rep)
		}
		r.disk = v
		r.t.Cleanup(func() { v.Close() })
		return v
	}
}

func (r *rig) makeVolume(owner, name string) {
	r.t.Helper()
	if _, err := r.disk.Create(r.t.Context(), owner, name, 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) holders(name string) []string {
	r.t.Helper()
	all, err := r.disk.Holders(context.Background(), acme.Owner, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func data(path string, readOnly bool) sandbox.CreateRequest {
	return sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Name: "data", Path: path, ReadOnly: readOnly}}}
}

// A volume is held from before the sandbox is made until after it is gone, and
// its files are there for the next.
func TestVolumeLife(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	r.makeVolume("acme", "data")
	a := d.create(data("/data", false))
	if !slices.Contains(a.NotEnforced, sandbox.LimitVolumes) || len(a.Volumes) != 1 {
		t.Errorf("it says %+v, %v", a.Volumes, a.NotEnforced)
	}
	if res := d.sh(a.UID, "echo kept > /data/f"); res.ShellCode() != 0 {
		t.Fatalf("%s", res.Stderr)
	}
	// Nobody else while one writes; who is in the way is named.
	for _, readOnly := range []bool{false, true} {
		_, err := d.Create(t.Context(), acme, data("/data", readOnly), "")
		var held *sandbox.VolumeHeldError
		if !errors.As(err, &held) || held.Holder != a.UID || !errdefs.IsConflict(err) {
			t.Errorf("a second one: %v", err)
		}
	}
	if n := len(r.inHost()); n != 1 {
		t.Errorf("%d sandboxes are there", n)
	}
	d.must(d.Stop(t.Context(), acme, a.UID))
	if got := r.holders("data"); !slices.Equal(got, []string{a.UID}) {
		t.Errorf("while it is stopped %v hold the volume", got)
	}
	d.must(d.Start(t.Context(), acme, a.UID))
	if err := d.Destroy(t.Context(), acme, a.UID); err != nil {
		t.Fatal(err)
	}
	if got := r.holders("data"); len(got) > 0 {
		t.Errorf("after its end %v hold the volume", got)
	}
	b, c := d.create(data("/seen", true)), d.create(data("/seen", true))
	if res := d.sh(b.UID, "cat /seen/f; echo no > /seen/f"); string(res.Stdout) != "kept\n" || res.ShellCode() == 0 {
		t.Errorf("the next one reads %q, and its write ends with %d", res.Stdout, res.ShellCode())
	}
	if got := r.holders("data"); len(got) != 2 || !slices.Contains(got, c.UID) {
		t.Errorf("two read, and %v hold the volume", got)
	}
}

// What can't be is refused before anything is made, and leaves nothing held.
func TestVolumeRefused(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	r.makeVolume("acme", "data")
	r.makeVolume("other", "theirs")
	mount := func(pairs ...string) (req sandbox.CreateRequest) {
		for i := 0; i < len(pairs); i += 2 {
			req.Volumes = append(req.Volumes, sandbox.VolumeMount{Name: pairs[i], Path: pairs[i+1]})
		}
		return req
	}
	for what, req := range map[string]sandbox.CreateRequest{
		"none such":         mount("data", "/data", "none", "/none"),
		"another owner's":   mount("data", "/data", "theirs", "/theirs"),
		"a path as a name":  mount("../data", "/data"),
		"twice":             mount("data", "/a", "data", "/b"),
		"the root":          mount("data", "/"),
		"/proc":             mount("data", "/proc"),
		"over the agent":    mount("data", "/.agentbox/guest"),
		"relative":          mount("data", "data"),
		"over the tenant's": {Tenant: "t", Volumes: mount("data", "/workspace/x").Volumes},
		"a bad tenant":      {Tenant: "../t"},
	} {
		var invalid *sandbox.InvalidError
		if _, err := d.Create(t.Context(), acme, req, ""); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
		if got := r.holders("data"); len(got) > 0 {
			t.Fatalf("after %s %v hold the volume", what, got)
		}
	}
	if n := len(r.inHost()); n != 0 {
		t.Errorf("%d sandboxes are there", n)
	}
}

// Without a place for volumes they are refused, and a tenant is a word.
func TestNoVolumes(t *testing.T) {
	d := newRig(t).open()
	if _, err := d.Create(t.Context(), acme, data("/data", false), ""); !errdefs.IsNotImplemented(err) {
		t.Errorf("a volume: %v", err)
	}
	if sb := d.create(sandbox.CreateRequest{Tenant: "t"}); sb.Tenant != "t" || sb.Storage || d.TenantStorage() {
		t.Errorf("got %+v", sb)
	}
}

// A daemon that is killed at any step of an operation with a volume leaves it held
// by the sandbox that there is, and else free.
func TestKilledWithVolume(t *testing.T) {
	for name, do := range map[string]func(d *daemon) error{
		"create": func(d *daemon) error {
			req := data("/data", false)
			req.Name, req.Tenant = "a", "t"
			_, err := d.Create(context.WithoutCancel(d.t.Context()), acme, req, "")
			return err
		},
		"destroy": func(d *daemon) error { return d.DestroyWithStorage(context.WithoutCancel(d.t.Context()), acme, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			for steps := 1; ; steps++ {
				r := newRig(t)
				r.withVolumes()
				d := r.open()
				r.makeVolume("acme", "data")
				if name == "destroy" {
					req := data("/data", false)
					req.Name, req.Tenant = "a", "t"
					d.create(req)
				}
				d.life.dieIn(steps)
				err := do(d)
				if !d.life.isDead() {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				d.kill()
				d = r.open()
				want := []string{}
				sb, err := d.Get(t.Context(), acme, "a")
				if err == nil {
					want = append(want, sb.UID)
				} else if name == "destroy" {
					if _, err := os.Stat(r.tenant("acme", "t")); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("after step %d the sandbox is gone, and the storage %v", steps, err)
					}
				}
				if got := r.holders("data"); !slices.Equal(got, want) {
					t.Errorf("after step %d %v hold the volume, want %v", steps, got, want)
				}
				d.close()
			}
		})
	}
}

func (r *rig) tenant(owner, tenant string) string {
	if owner == sandbox.DefaultOwner {
		return filepath.Join(r.storage, tenant)
	}
	return filepath.Join(r.storage, ".owners", owner, tenant)
}

// The storage of a tenant is shared by all its sandboxes and kept, unless the last
// one is told otherwise; tenants of other owners are others.
func TestTenantStorage(t *testing.T) {
	r := newRig(t)
	r.withVolumes()
	d := r.open()
	req := sandbox.CreateRequest{Tenant: "acme"}
	a, b := d.create(req), d.create(req)
	if !slices.Contains(a.NotEnforced, sandbox.LimitStorage) {
		t.Errorf("not enforced are %v", a.NotEnforced)
	}
	d.sh(a.UID, "echo shared > /workspace/f; echo out > /mnt/user-data/outputs/o")
	if res := d.sh(b.UID, "cat /workspace/f /mnt/user-data/outputs/o"); string(res.Stdout) != "shared\nout\n" {
		t.Errorf("the other one reads %q %s", res.Stdout, res.Stderr)
	}
	other, err := d.Create(t.Context(), sandbox.Caller{Owner: "other"}, req, "")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := d.Exec(t.Context(), sandbox.Caller{Owner: "other"}, other.UID, sandbox.Command{Shell: "cat /workspace/f"}, nil, ""); err != nil || res.ShellCode() == 0 {
		t.Errorf("the tenant of another owner: %+v, %v", res, err)
	}
	var held *sandbox.VolumeHeldError
	if err := d.DestroyWithStorage(t.Context(), acme, a.UID); !errors.As(err, &held) || held.Holder != b.UID {
		t.Errorf("while another one has it: %v", err)
	}
	d.get(a.UID) // nothing was done
	if err := d.Destroy(t.Context(), acme, a.UID); err != nil {
		t.Fatal(err)
	}
	if err := d.Destroy(t.Context(), acme, b.UID); err != nil {
		t.Fatal(err)
	}
	d.close()
	d = r.open()
	c := d.create(req)
	if res := d.sh(c.UID, "cat /workspace/f"); string(res.Stdout) != "shared\n" {
		t.Errorf("the next one reads %q", res.Stdout)
	}
	if err := d.DestroyWithStorage(t.Context(), acme, c.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.tenant("acme", "acme")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the storage is still there: %v", err)
	}
	if _, err := os.Stat(r.tenant("other", "acme")); err != nil {
		t.Errorf("the storage of another owner is gone: %v", err)
	}
	plain := d.create(sandbox.CreateRequest{})
	if err := d.DestroyWithStorage(t.Context(), acme, plain.UID); !errdefs.IsInvalidArgument(err) {
		t.Errorf("one without storage: %v", err)
	}
	d.get(plain.UID)
}
