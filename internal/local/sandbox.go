package local

import (
	"context"
	"errors"
	"io"
	"sync"

	"agentbox/internal/cleanup"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/live"
	"agentbox/internal/sandbox"
)

// Images gives an image for as long as a sandbox uses it.
type Images interface {
	Acquire(ctx context.Context, name string) (img image.Image, release func(), err error)
}

// Request is what a new sandbox should be.
type Request = live.Request

// Sandbox is a running sandbox of this process.
type Sandbox struct {
	*live.Box
	NotEnforced []string

	engine  *Engine
	release func()
	once    sync.Once
}

// Create makes a sandbox and connects to its agent. It leaves nothing behind
// when it fails.
func (e *Engine) Create(ctx context.Context, req Request) (_ *Sandbox, err error) {
	img, release, err := e.images.Acquire(ctx, req.Image)
	if err != nil {
		return nil, err
	}
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	undo.Add(func() error { release(); return nil })
	box, err := e.host.Create(ctx, req.Spec(ids.UID(), img))
	if err != nil {
		return nil, err
	}
	undo.Release()
	return &Sandbox{Box: box, NotEnforced: e.Capabilities().NotEnforced, engine: e, release: release}, nil
}

// Start starts a command; its result comes from Wait. In a sandbox that has
// ended the error says why.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command, out client.Output) (*client.Process, error) {
	return s.Box.Start(ctx, "run-"+ids.Hex(6), cmd, out)
}

// Destroy ends the sandbox and removes everything of it. It may be called more
// than once.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.End(sandbox.ReasonDestroyed, "")
	err := s.engine.rt.Destroy(ctx, s.ID)
	if err == nil {
		s.once.Do(s.release)
	}
	return err
}

// PutTree unpacks the tar stream r into the directory dir of the sandbox, as
// its user.
func (s *Sandbox) PutTree(ctx context.Context, dir string, r io.Reader) error {
	return s.Session().PutArchive(ctx, dir, r, client.UnpackOptions{})
}
