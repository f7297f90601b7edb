// Package local runs ephemeral sandboxes in this process, for commands such as
// agentbox run: it owns an owner directory, reclaims what dead owners left, and
// puts image, back end and guest session together into a sandbox that is gone
// when its user is.
package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentbox/internal/live"
	"agentbox/internal/owner"
	"agentbox/internal/runtime"
)

// Backend makes a back end that keeps its things in an owner's directory.
type Backend func(ownerID, dir string) (runtime.Runtime, error)

// Engine runs the sandboxes of one process.
type Engine struct {
	rt     runtime.Runtime
	host   *live.Host
	owner  *owner.Owner
	images Images
}

// Open reclaims what dead owners left in dataDir and starts an engine of this
// process's own. An error of the reclaiming is passed to warn and does not keep
// the engine from starting.
func Open(ctx context.Context, dataDir string, images Images, newBackend Backend, warn func(error)) (*Engine, error) {
	if _, err := Reclaim(ctx, dataDir, newBackend); err != nil {
		warn(err)
	}
	o, err := owner.New(dataDir)
	if err != nil {
		return nil, err
	}
	rt, err := newBackend(o.ID, o.Dir)
	if err != nil {
		return nil, errors.Join(err, o.Release())
	}
	return &Engine{rt: rt, host: live.NewHost(rt), owner: o, images: images}, nil
}

// Capabilities of the back end.
func (e *Engine) Capabilities() runtime.Capabilities { return e.rt.Capabilities() }

// Dir is the owner's directory, for what this process offers to others of its
// user. It goes with the engine.
func (e *Engine) Dir() string { return e.owner.Dir }

// Close destroys the sandboxes that are left and gives the owner directory
// back.
func (e *Engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := destroyAll(ctx, e.rt)
	e.host.Close()
	err = errors.Join(err, e.rt.Close())
	if err != nil {
		return err // the lock goes with the process; the next one reclaims
	}
	return e.owner.Release()
}

// Reclaim removes the sandboxes of owners that are dead and returns their ids.
func Reclaim(ctx context.Context, dataDir string, newBackend Backend) ([]string, error) {
	return owner.Sweep(ctx, dataDir, func(ctx context.Context, id, dir string) error {
		rt, err := newBackend(id, dir)
		if err != nil {
			return err
		}
		return errors.Join(destroyAll(ctx, rt), rt.Close())
	})
}

func destroyAll(ctx context.Context, rt runtime.Runtime) error {
	all, err := rt.List(ctx)
	for _, s := range all {
		if e := rt.Destroy(ctx, s.ID); e != nil {
			err = errors.Join(err, fmt.Errorf("destroy %s: %w", s.ID, e))
		}
	}
	return err
}
