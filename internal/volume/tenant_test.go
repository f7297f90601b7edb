//go:build linux

package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
	"agentbox/internal/volume"
)

// All sandboxes of a tenant see the same files; owners with a tenant of one name
// never meet.
func TestTenants(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	one, err := v.AcquireTenant(t.Context(), "default", "acme", "s1")
	must(t, err)
	two, err := v.AcquireTenant(t.Context(), "default", "acme", "s2")
	must(t, err)
	other, err := v.AcquireTenant(t.Context(), "b", "acme", "s3")
	must(t, err)
	if one.Workspace != filepath.Join(h.Storage, "acme/workspace") || one.Outputs != filepath.Join(h.Storage, "acme/outputs") || two.Workspace != one.Workspace {
		t.Errorf("%+v and %+v", one, two)
	}
	if other.Workspace != filepath.Join(h.Storage, ".owners/b/acme/workspace") {
		t.Errorf("another owner: %+v", other)
	}
	if !slices.Equal(one.NotEnforced, []string{sandbox.LimitDisk}) {
		t.Errorf("not enforced: %v", one.NotEnforced)
	}
	if i, _ := os.Stat(one.Outputs); i.Mode().Perm() != 0o777 {
		t.Errorf("outputs: %v", i.Mode())
	}
	if i, _ := os.Stat(filepath.Dir(one.Outputs)); i.Mode().Perm() != 0o710 {
		t.Errorf("the tenant's directory: %v", i.Mode())
	}
	v.ReleaseTenant("default", "acme", "s1")
	if err := v.RemoveTenant(t.Context(), "default", "acme"); !errdefs.IsConflict(err) {
		t.Errorf("s2 uses it: %v", err)
	}
	v.ReleaseTenant("default", "acme", "s2")
	must(t, v.RemoveTenant(t.Context(), "default", "acme"))
	must(t, v.RemoveTenant(t.Context(), "default", "acme")) // there is none
	if _, err := os.Stat(filepath.Join(h.Storage, "acme")); err == nil {
		t.Error("it is still there")
	}
	if _, err := os.Stat(other.Workspace); err != nil {
		t.Error(err)
	}
}

// An owner has so many tenants with storage and no more, whoever asks at once; those
// who have it keep it, and other owners are not concerned.
func TestTEN10_TenantsPerOwner(t *testing.T) {
	for _, owner := range []string{sandbox.DefaultOwner, "a"} {
		h := newHost(t, sandbox.VolumeDirectory)
		h.Tenants = 3
		v, _ := h.open(t)
		must(t, errors.Join(makeTenant(t, v, "b", "other"), makeTenant(t, v, sandbox.DefaultOwner, "other")))
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = makeTenant(t, v, owner, fmt.Sprint("t", i)) })
		}
		wg.Wait()
		made := 0
		if owner == sandbox.DefaultOwner {
			made++ // the other one
		}
		for i, err := range errs {
			var full *sandbox.LimitError
			switch {
			case err == nil:
				made++
				must(t, makeTenant(t, v, owner, fmt.Sprint("t", i))) // as often as one likes
			case !errors.As(err, &full) || !full.Quota || !strings.Contains(err.Error(), "(3)"):
				t.Errorf("%s, tenant %d: %v", owner, i, err)
			}
		}
		if made != 3 {
			t.Errorf("%s has %d tenants, 3 may be", owner, made)
		}
		must(t, v.Close())
		h.Tenants = 1 // fewer than there are
		v, _ = h.open(t)
		for i, err := range errs {
			if again := makeTenant(t, v, owner, fmt.Sprint("t", i)); (again == nil) != (err == nil) {
				t.Errorf("%s, tenant %d: %v, and then %v", owner, i, err, again)
			}
		}
	}
}

// makeTenant makes the storage of a tenant that nobody uses.
func makeTenant(t *testing.T, v *volume.Volumes, owner, tenant string) error {
	_, err := v.AcquireTenant(t.Context(), owner, tenant, "s")
	v.ReleaseTenant(owner, tenant, "s")
	return err
}

// However deep a guest nests directories, few of them are open at once.
func TestRemoveDeepTree(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	s, err := v.AcquireTenant(t.Context(), "default", "acme", "s")
	must(t, err)
	v.ReleaseTenant("default", "acme", "s")
	for _, dir := range []string{s.Workspace, s.Outputs} {
		deepTree(t, dir, 1000)
	}
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 300, Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	must(t, v.RemoveTenant(t.Context(), "default", "acme"))
	if names, _ := os.ReadDir(h.Storage); len(names) != 1 { // .removed
		t.Errorf("left: %v", names)
	}
}

// A link where a tenant's directory should be leads nowhere.
func TestTenantLinks(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	out := t.TempDir()
	must(t, os.Symlink(out, filepath.Join(h.Storage, "abs")))
	must(t, os.Mkdir(filepath.Join(h.Storage, "real"), 0o700))
	must(t, os.Symlink("real", filepath.Join(h.Storage, "rel")))
	must(t, os.Mkdir(filepath.Join(h.Storage, "half"), 0o700))
	must(t, os.Symlink(out, filepath.Join(h.Storage, "half", "outputs")))
	for _, id := range []string{"abs", "rel", "half"} {
		if s, err := v.AcquireTenant(t.Context(), "default", id, "s"); err == nil {
			t.Errorf("%s: %+v", id, s)
		}
	}
	if names, _ := os.ReadDir(out); len(names) != 0 {
		t.Errorf("made %v", names)
	}
}

func TestTenantsAtOnce(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	v, _ := h.open(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := v.AcquireTenant(t.Context(), "b", string(rune('a'+i%4)), "s"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNoStorage(t *testing.T) {
	h := newHost(t, sandbox.VolumeDirectory)
	h.Storage = ""
	v, _ := h.open(t)
	if _, err := v.AcquireTenant(t.Context(), "default", "acme", "s"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("without storage: %v", err)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"acme", "../x", ".owners", "a/b", "-rf", "a\n", "x\x00"} {
		f.Add("a", s)
	}
	f.Fuzz(func(t *testing.T, owner, id string) {
		outer := t.TempDir()
		storage := filepath.Join(outer, "s")
		v, _, err := volume.Open(t.Context(), volume.Options{Dir: filepath.Join(outer, "v"), Storage: storage, Records: newRecords()}, nil)
		must(t, err)
		defer v.Close()
		s, err := v.AcquireTenant(t.Context(), owner, id, "s")
		if err != nil {
			if names, _ := os.ReadDir(storage); len(names) != 0 || !errdefs.IsInvalidArgument(err) {
				t.Fatalf("%v: %v", names, err)
			}
			return
		}
		want := filepath.Join(storage, id)
		if owner != sandbox.DefaultOwner {
			want = filepath.Join(storage, ".owners", owner, id)
		}
		if filepath.Dir(s.Workspace) != want || filepath.Base(id) != id {
			t.Fatalf("%q of %q is at %s", id, owner, s.Workspace)
		}
		if names, _ := os.ReadDir(outer); len(names) != 2 {
			t.Fatalf("outside: %v", names)
		}
	})
}
