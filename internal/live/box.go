package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/cleanup"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Box is a sandbox that runs, with a session to its agent.
type Box struct {
	ID string

	host   *Host
	limits sandbox.Limits
	end    *end

	mu      sync.Mutex
	session *client.Session
	out     bool                // the session has a tunnel
	kills   map[string]int64    // out-of-memory kills when an exec began, by its id, until it is judged
	ooms    map[string]struct{} // execs that were found to be such a kill
}

// Create makes a sandbox and connects to its agent. It leaves nothing behind
// when it fails.
func (h *Host) Create(ctx context.Context, spec Spec) (_ *Box, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	made := runtime.Spec{ID: spec.ID, Limits: spec.Limits, Require: spec.Require, Image: spec.Image, Labels: spec.Labels, Mounts: spec.Mounts}
	b := h.newBox(spec.ID, spec.Limits)
	undo.Add(func() error { h.forget(b.ID, b.end); return nil })
	if err := h.rt.Create(ctx, made); err != nil {
		return nil, fmt.Errorf("create the sandbox: %w", err)
	}
	undo.Add(func() error { return h.rt.Destroy(context.WithoutCancel(ctx), b.ID) })
	if err := h.rt.Start(ctx, b.ID); err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	if err := b.connect(ctx, 1, spec.Config); err != nil {
		return nil, err
	}
	if err := b.own(ctx, spec); err != nil {
		return nil, fmt.Errorf("give directories to user %s: %w", spec.User, errors.Join(err, b.session.Close()))
	}
	undo.Release()
	return b, nil
}

// Start runs a sandbox that was stopped. It stays stopped when the back end
// can't start it; after another error it may run. The epoch is higher than that
// of every session before.
func (h *Host) Start(ctx context.Context, id string, c Config, epoch uint64) (*Box, error) {
	b := h.newBox(id, c.Limits)
	err := h.rt.Start(ctx, id)
	if err != nil {
		err = fmt.Errorf("start the sandbox: %w", err)
	} else {
		err = b.connect(ctx, epoch, c)
	}
	if err != nil {
		h.forget(id, b.end)
		return nil, err
	}
	return b, nil
}

// Adopt connects to a sandbox that runs already. Its agent is told the config
// anew.
func (h *Host) Adopt(ctx context.Context, id string, c Config, epoch uint64) (*Box, error) {
	b := h.newBox(id, c.Limits)
	if err := b.connect(ctx, epoch, c); err != nil {
		h.forget(id, b.end)
		return nil, err
	}
	return b, nil
}

func (h *Host) newBox(id string, limits sandbox.Limits) *Box {
	return &Box{ID: id, host: h, limits: limits, end: h.expect(id), kills: map[string]int64{}, ooms: map[string]struct{}{}}
}

// Renew opens a new session in place of one that ended.
func (b *Box) Renew(ctx context.Context, c Config, epoch uint64) error {
	return b.connect(ctx, epoch, c)
}

func (b *Box) connect(ctx context.Context, epoch uint64, c Config) error {
	o := client.Options{SandboxID: b.ID, Hostname: ids.Short(b.ID), Epoch: epoch, Config: c.guest(), Tunnel: c.Tunnel}
	conn, err := b.host.rt.Attach(ctx, b.ID)
	if err != nil {
		return fmt.Errorf("connect to the sandbox's agent: %w", err)
	}
	s, err := client.New(ctx, conn, o)
	if err != nil {
		return fmt.Errorf("greet the sandbox's agent: %w", errors.Join(err, b.why(ctx, err)))
	}
	b.mu.Lock()
	old := b.session
	b.session, b.out = s, c.Tunnel != nil
	b.mu.Unlock()
	if old != nil {
		_ = old.Close() // it has ended: what it says no longer matters
	}
	return nil
}

// own makes directories the user's, who must be there.
func (b *Box) own(ctx context.Context, spec Spec) error {
	if len(spec.Own) == 0 {
		return nil
	}
	argv := []string{"sh", "-c", `u=$(id -u "$0") && g=$(id -g "$0") || exit; for d; do [ ! -d "$d" ] || chown "$u:$g" "$d" || exit; done`, spec.User}
	r, err := b.session.Run(ctx, sandbox.Command{Argv: append(argv, spec.Own...), User: "root", Dir: "/"}, nil)
	if err != nil {
		return err
	}
	if r.ShellCode() != 0 {
		return fmt.Errorf("%.500s; an image that was made before it had the user is made anew by agentbox images build %s: %w",
			strings.TrimSpace(string(r.Stderr)), spec.ImageName, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Reconfigure tells the agent what it must know anew; what runs goes on. Calls
// must not overlap.
func (b *Box) Reconfigure(ctx context.Context, c Config) error {
	b.mu.Lock()
	s, out := b.session, b.out
	b.mu.Unlock()
	if err := s.Configure(ctx, c.guest()); err != nil {
		return err
	}
	if c.Tunnel != nil && !out {
		if err := s.ServeTunnel(ctx, c.Tunnel); err != nil {
			return err
		}
		out = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = c.Limits
	if b.session == s {
		b.out = out
	}
	return nil
}

// Session is the connection to the sandbox's agent.
func (b *Box) Session() *client.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// Ended is closed when the sandbox has ended, by itself or as End was told.
func (b *Box) Ended() <-chan struct{} { return b.end.done }

// HowEnded tells how; Ended must be closed.
func (b *Box) HowEnded() runtime.Event { return b.end.event }

// End says that the sandbox is about to end by order, and why: commands that
// wait are told so at once, instead of what the back end finds. The session
// ends. It may be called more than once; the first reason counts.
func (b *Box) End(reason sandbox.Reason, detail string) {
	b.host.ended(runtime.Event{ID: b.ID, Reason: reason, ExitCode: -1, Detail: detail, Time: time.Now()})
	b.LetGo()
}

// LetGo ends the session and stops listening for the sandbox's end. The sandbox
// and its commands live on.
func (b *Box) LetGo() {
	_ = b.Session().Close() // whatever it says, it is over
	b.host.forget(b.ID, b.end)
}
