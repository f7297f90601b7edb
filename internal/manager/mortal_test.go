package manager_test

import (
	"context"
	"net"
	"time"

	"agentbox/internal/manager"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/store"
	"agentbox/internal/volume"
)

type mortalRuntime struct {
	runtime.Runtime
	l *life
}

func (r *mortalRuntime) Create(ctx context.Context, s runtime.Spec) error {
	return r.l.around("create", func() error { return r.Runtime.Create(ctx, s) })
}

func (r *mortalRuntime) Start(ctx context.Context, id string) error {
	return r.l.around("start", func() error { return r.Runtime.Start(ctx, id) })
}

func (r *mortalRuntime) Attach(ctx context.Context, id string) (net.Conn, error) {
	if err := r.l.step("attach"); err != nil {
		return nil, err
	}
	conn, err := r.Runtime.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	return &mutableConn{conn, r.l}, nil
}

func (r *mortalRuntime) Stop(ctx context.Context, id string) error {
	return r.l.around("stop", func() error { return r.Runtime.Stop(ctx, id) })
}

func (r *mortalRuntime) Destroy(ctx context.Context, id string) error {
	return r.l.around("destroy", func() error { return r.Runtime.Destroy(ctx, id) })
}

func (r *mortalRuntime) List(ctx context.Context) ([]runtime.Info, error) {
	if err := r.l.step("list"); err != nil {
		return nil, err
	}
	return r.Runtime.List(ctx)
}

// Resize implements runtime.Resizer.
func (r *mortalRuntime) Resize(ctx context.Context, id string, l sandbox.Limits) error {
	resizer, _ := runtime.As[runtime.Resizer](r.Runtime)
	return r.l.around("resize", func() error { return resizer.Resize(ctx, id, l) })
}

// OOMKills implements runtime.OOMReader.
func (r *mortalRuntime) OOMKills(context.Context, string) (int64, error) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.l.ooms, nil
}

// Stats implements runtime.StatsReader.
func (r *mortalRuntime) Stats(context.Context, string) (runtime.Stats, error) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return runtime.Stats{Memory: 123, OOMKills: r.l.ooms}, nil
}

type mortalStore struct {
	*store.Store
	l *life
}

func (s *mortalStore) Admit(ctx context.Context, a sandbox.Admission, ev *sandbox.Event) (before string, err error) {
	err = s.l.around("admit", func() error {
		before, err = s.Store.Admit(ctx, a, ev)
		return err
	})
	return before, err
}

func (s *mortalStore) Save(ctx context.Context, sb sandbox.Sandbox, ev *sandbox.Event) error {
	return s.l.around("save "+string(sb.Status), func() error { return s.Store.Save(ctx, sb, ev) })
}

func (s *mortalStore) Touch(ctx context.Context, used map[string]time.Time) error {
	return s.l.around("touch", func() error { return s.Store.Touch(ctx, used) })
}

func (s *mortalStore) Bury(ctx context.Context, dead sandbox.Tombstone, ev *sandbox.Event) error {
	return s.l.around("bury", func() error { return s.Store.Bury(ctx, dead, ev) })
}

func (s *mortalStore) Forget(ctx context.Context, uid string) error {
	return s.l.around("forget", func() error { return s.Store.Forget(ctx, uid) })
}

type mortalVolumes struct {
	manager.Volumes
	l *life
}

func (v *mortalVolumes) Acquire(ctx context.Context, owner, name, holder string, readOnly bool) (m volume.Mount, err error) {
	err = v.l.around("volume", func() error {
		m, err = v.Volumes.Acquire(ctx, owner, name, holder, readOnly)
		return err
	})
	return m, err
}

func (v *mortalVolumes) Release(ctx context.Context, owner, name, holder string) error {
	return v.l.around("release", func() error { return v.Volumes.Release(ctx, owner, name, holder) })
}

func (v *mortalVolumes) CreateAs(ctx context.Context, id, owner, name string, size int64) (vol sandbox.Volume, err error) {
	err = v.l.around("make volume", func() error {
		vol, err = v.Volumes.CreateAs(ctx, id, owner, name, size)
		return err
	})
	return vol, err
}

func (v *mortalVolumes) Remove(ctx context.Context, owner, name string) error {
	return v.l.around("remove volume", func() error { return v.Volumes.Remove(ctx, owner, name) })
}

func (v *mortalVolumes) RemoveTenant(ctx context.Context, owner, tenant string) error {
	return v.l.around("remove tenant", func() error { return v.Volumes.RemoveTenant(ctx, owner, tenant) })
}
