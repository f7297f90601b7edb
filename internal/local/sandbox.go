package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/cleanup"
	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Images gives an image for as long as a sandbox uses it.
type Images interface {
	Acquire(ctx context.Context, name string) (img image.Image, release func(), err error)
}

// Request is what a new sandbox should be.
type Request struct {
	Image  string
	Limits sandbox.Limits // with defaults filled in
	// Require names the limits that must be enforced (sandbox.Limit…).
	Require []string
	// User and Workdir replace the image's; Env is added to it.
	User, Workdir string
	Env           []string
	// Own names directories that are to belong to User. Those that the image
	// does not have are left out.
	Own []string
}

// ApplyAlias makes the request what an alias stands for. What the request says
// already counts more. Other names of images change nothing.
func (r *Request) ApplyAlias() {
	a, ok := image.FindAlias(r.Image)
	if !ok {
		return
	}
	r.Image = a.Image
	r.Env = append(a.Env, r.Env...)
	if r.Workdir == "" {
		r.Workdir = a.Workdir
	}
	if r.User == "" {
		r.User, r.Own = a.User, image.OwnedDirs
	}
}

// Sandbox is a running sandbox of this process.
type Sandbox struct {
	ID          string
	NotEnforced []string

	engine  *Engine
	limits  sandbox.Limits
	session *client.Session
	end     *end
	release func()
	once    sync.Once

	mu    sync.Mutex
	kills map[string]int64 // out-of-memory kills when an exec began, by its id
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

	s := &Sandbox{ID: ids.UID(), engine: e, limits: req.Limits, release: release, kills: map[string]int64{}}
	s.end = e.expect(s.ID)
	undo.Add(func() error { e.forget(s.ID); return nil })
	spec := runtime.Spec{
		ID: s.ID, Limits: req.Limits, Require: req.Require,
		Image: runtime.Image{Path: img.Path, Digest: img.Digest},
	}
	if err := e.rt.Create(ctx, spec); err != nil {
		return nil, fmt.Errorf("create the sandbox: %w", err)
	}
	undo.Add(func() error { return e.rt.Destroy(context.WithoutCancel(ctx), s.ID) })
	if err := e.rt.Start(ctx, s.ID); err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	conn, err := e.rt.Attach(ctx, s.ID)
	if err != nil {
		return nil, fmt.Errorf("connect to the sandbox's agent: %w", err)
	}
	s.session, err = client.New(ctx, conn, client.Options{
		SandboxID: s.ID, Hostname: ids.Short(s.ID), Epoch: 1, Config: guestConfig(req, img),
	})
	if err != nil {
		return nil, fmt.Errorf("greet the sandbox's agent: %w", errors.Join(err, s.why(ctx, err)))
	}
	if err := s.own(ctx, req); err != nil {
		return nil, fmt.Errorf("give directories to user %s: %w", req.User, errors.Join(err, s.session.Close()))
	}
	s.NotEnforced = e.Capabilities().NotEnforced
	undo.Release()
	return s, nil
}

func guestConfig(req Request, img image.Image) *guestv1.GuestConfig {
	c := &guestv1.GuestConfig{
		MemoryLimit: req.Limits.Memory, MaxPids: req.Limits.Pids, OpenFiles: req.Limits.OpenFiles,
		User: img.Config.User, Workdir: img.Config.Workdir,
		MaxExecs: sandbox.MaxExecs, MaxQueued: sandbox.MaxQueuedExecs, RingSize: sandbox.DefaultRing,
	}
	if req.User != "" {
		c.User = req.User
	}
	if req.Workdir != "" {
		c.Workdir = req.Workdir
	}
	for _, e := range append(img.Config.Env, req.Env...) {
		c.Env = append(c.Env, []byte(e))
	}
	return c
}

// own makes directories the user's, who must be there.
func (s *Sandbox) own(ctx context.Context, req Request) error {
	if len(req.Own) == 0 {
		return nil
	}
	argv := []string{"sh", "-c", `u=$(id -u "$0") && g=$(id -g "$0") || exit; for d; do [ ! -d "$d" ] || chown "$u:$g" "$d" || exit; done`, req.User}
	r, err := s.session.Run(ctx, sandbox.Command{Argv: append(argv, req.Own...), User: "root", Dir: "/"}, nil)
	if err != nil {
		return err
	}
	if r.ShellCode() != 0 {
		return fmt.Errorf("%.500s; an image that was made before it had the user is made anew by agentbox images build %s: %w",
			strings.TrimSpace(string(r.Stderr)), req.Image, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Session is the connection to the sandbox's agent.
func (s *Sandbox) Session() *client.Session { return s.session }

// Destroy ends the sandbox and removes everything of it. It may be called more
// than once.
func (s *Sandbox) Destroy(ctx context.Context) error {
	_ = s.session.Close() // the sandbox goes: what the session says no longer matters
	err := s.engine.rt.Destroy(ctx, s.ID)
	if err == nil {
		s.once.Do(func() {
			s.engine.forget(s.ID)
			s.release()
		})
	}
	return err
}

// Start starts a command; its result comes from [Sandbox.Wait]. In a sandbox
// that has ended the error says why.
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Command, out client.Output) (*client.Process, error) {
	before := s.oomKills(ctx)
	p, err := s.session.Start(ctx, "run-"+ids.Hex(6), cmd, out)
	if err != nil {
		// The session may not have noticed yet that its stream is gone.
		if s.session.Err() == nil && !errdefs.IsUnavailable(err) {
			return nil, err
		}
		return nil, errors.Join(s.why(ctx, err), err)
	}
	s.mu.Lock()
	s.kills[p.ID()] = before
	s.mu.Unlock()
	return p, nil
}

// oomKills is how many processes of the sandbox the host killed for their
// memory; 0 where the back end can't tell.
func (s *Sandbox) oomKills(ctx context.Context) int64 {
	r, ok := runtime.As[runtime.StatsReader](s.engine.rt)
	if !ok {
		return 0
	}
	st, err := r.Stats(ctx, s.ID)
	if err != nil {
		return 0 // then nothing is claimed
	}
	return st.OOMKills
}

// Wait waits for p. A command that went down with the sandbox has the result
// OOM or Lost, with the reason; an error is agentbox's own.
func (s *Sandbox) Wait(ctx context.Context, p *client.Process) (*sandbox.Result, error) {
	res, err := p.Wait(ctx)
	if ctx.Err() != nil && err != nil {
		return res, ctx.Err()
	}
	s.mu.Lock()
	before := s.kills[p.ID()]
	delete(s.kills, p.ID())
	s.mu.Unlock()
	if err == nil && res.Outcome != sandbox.Lost {
		if killed(res) && s.oomKills(ctx) > before {
			s.outOfMemory(res)
		}
		return res, nil
	}
	ev := s.death(ctx, err)
	if ev == nil {
		return res, err
	}
	res.Outcome, res.Reason = sandbox.Lost, deathText(*ev)
	if ev.Reason == sandbox.ReasonOOM {
		s.outOfMemory(res)
	}
	return res, nil
}

// killed reports a result that the host's out-of-memory killer may be behind:
// SIGKILL, of the command itself or of the one that a shell waited for. The host
// takes the biggest process where it can, and the sandbox lives on.
func killed(r *sandbox.Result) bool {
	const sigkill = 9
	return r.Outcome == sandbox.Signaled && r.Signal == sigkill || r.Outcome == sandbox.Exited && r.ExitCode == 128+sigkill
}

func (s *Sandbox) outOfMemory(r *sandbox.Result) {
	r.Outcome, r.Signal, r.ExitCode = sandbox.OOM, 9, 0
	r.Reason = s.memoryText()
}

func (s *Sandbox) memoryText() string {
	return fmt.Sprintf("the memory limit of %s was reached", sandbox.FormatSize(s.limits.Memory))
}

// death waits briefly for the back end's word on why the sandbox ended: it
// comes some milliseconds after the stream broke. A sandbox whose agent answered,
// be it with an error, is not waited for.
func (s *Sandbox) death(ctx context.Context, failed error) *runtime.Event {
	if client.Told(failed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case <-s.end.done:
		return &s.end.event
	case <-ctx.Done():
		return nil
	}
}

// why is the sandbox's death as an error, nil when it lives. failed is what
// raises the question.
func (s *Sandbox) why(ctx context.Context, failed error) error {
	if ev := s.death(ctx, failed); ev != nil {
		if ev.Reason == sandbox.ReasonOOM {
			return errors.New(s.memoryText())
		}
		return errors.New(deathText(*ev))
	}
	return nil
}

func deathText(ev runtime.Event) string {
	t := "the sandbox ended: " + string(ev.Reason)
	if ev.Detail != "" {
		t += ": " + ev.Detail
	}
	return t
}

// PutTree unpacks the tar stream r into the directory dir of the sandbox, as
// its user.
func (s *Sandbox) PutTree(ctx context.Context, dir string, r io.Reader) error {
	return s.session.PutArchive(ctx, dir, r, client.UnpackOptions{})
}
