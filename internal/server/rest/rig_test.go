package rest_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	"agentbox/internal/egress/vault"
	"agentbox/internal/image"
	"agentbox/internal/manager"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

// newManager has sandboxes that isolate nothing, with everything above them
// real.
func newManager(t testing.TB) (*manager.Manager, *volume.Volumes, *vault.Vault) {
	t.Helper()
	host := fake.NewHost(fake.Options{NotEnforced: []string{sandbox.LimitCPUs}})
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	rt := host.Open()
	dir := t.TempDir()
	v, _, err := volume.Open(t.Context(), volume.Options{
		Dir: filepath.Join(dir, "volumes"), Storage: filepath.Join(dir, "storage"), Records: db, Kind: sandbox.VolumeDirectory, PerOwner: 4,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := vault.Open(t.Context(), vault.Options{Records: db, KeyFile: filepath.Join(dir, "secrets.key"), Make: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.Open(t.Context(), manager.Options{
		Runtime: rt, Images: files{}, Store: db, Volumes: v, Secrets: secrets, Policy: manager.Policy{Max: sandbox.MaxLimits(64*sandbox.GiB, 4), MaxPerOwner: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []func() error{m.Close, rt.Close, v.Close, db.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
		host.Close()
	})
	return m, v, secrets
}

// files gives sandboxes their images.
type files struct{}

func (files) Acquire(_ context.Context, name string) (image.Image, func(), error) {
	if name == "missing" {
		return image.Image{}, nil, errdefs.ErrNotFound
	}
	return image.Image{Name: name, Path: "/images/" + name, Digest: "sha256:" + name}, func() {}, nil
}

func (files) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// shelf has images by name; "used" is used by a sandbox.
type shelf struct {
	mu    sync.Mutex
	names []string
}

func (s *shelf) List() ([]image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []image.Image
	for _, n := range slices.Sorted(slices.Values(s.names)) {
		all = append(all, image.Image{Name: n})
	}
	return all, nil
}

func (s *shelf) Inspect(name string) (image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.names, name) {
		return image.Image{}, errdefs.ErrNotFound
	}
	return image.Image{Name: name}, nil
}

func (s *shelf) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.names, name)
	switch {
	case i < 0:
		return errdefs.ErrNotFound
	case name == "default":
		return errdefs.ErrFailedPrecondition // a sandbox uses it
	}
	s.names = slices.Delete(s.names, i, i+1)
	return nil
}

func (s *shelf) Pull(_ context.Context, ref, _ string) (image.Image, error) {
	if ref == "private" {
		return image.Image{}, errdefs.ErrUnauthenticated
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, ref)
	return image.Image{Name: ref}, nil
}

// fullDisk is an audit log that can't be written while full is set.
type fullDisk struct {
	*audit.Log
	full *atomic.Bool
	last atomic.Bool
}

func (f *fullDisk) Write(r audit.Record) error {
	f.last.Store(f.full.Load())
	if err := f.Err(); err != nil {
		return err
	}
	return f.Log.Write(r)
}

func (f *fullDisk) Err() error {
	if f.last.Load() {
		return syscall.ENOSPC
	}
	return nil
}
