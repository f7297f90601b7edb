package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// Agent is the agent of one sandbox; client.Session is one.
type Agent interface {
	Start(ctx context.Context, id string, c sandbox.Command, out client.Output) (*client.Process, error)
	Attach(ctx context.Context, id string, stdout, stderr int64, out client.Output) (*client.Process, error)
	Execs(ctx context.Context) ([]client.ExecInfo, error)
	WaitExec(ctx context.Context, id string, timeout time.Duration, output bool) (client.ExecInfo, error)
	SignalExec(ctx context.Context, id string, signal int, tree bool) error
	RemoveExec(ctx context.Context, id string) error
}

// Session is a session that is there.
type Session struct {
	Name   string
	ExecID string // of its shell
	// Started is when its shell began, by the sandbox's clock. A time-out that
	// only the shell's end could enforce begins another.
	Started time.Time
}

// Engine runs commands in sessions, in each one at a time.
type Engine struct {
	mu    sync.Mutex
	locks map[string]*lock
}

// lock is a mutex that can be waited for with a context.
type lock struct {
	held  chan struct{} // has room for one holder
	users int
}

// New returns an engine.
func New() *Engine { return &Engine{locks: map[string]*lock{}} }

// lock makes the caller the only one who works with a session.
func (e *Engine) lock(ctx context.Context, uid, name string) (unlock func(), err error) {
	key := uid + "/" + name
	e.mu.Lock()
	l := e.locks[key]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		e.locks[key] = l
	}
	l.users++
	e.mu.Unlock()
	leave := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(e.locks, key)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for session %s: %w", name, context.Cause(ctx))
	}
}

const sessionPrefix = "session-"

// ExecID is the id of a session's shell. Ids that others draw have no dash.
func ExecID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return sessionPrefix + hex.EncodeToString(sum[:16])
}

// tag begins the command line of a session's shell, and names the session for
// List. Behind the name is what the session was made as, if that is known.
const tag = ": session "

// command runs a session's shell: the best that the image has, as it is chosen
// for command lines, reading commands from its input.
func command(name, made string) sandbox.Command {
	return sandbox.Command{
		Shell: tag + strings.TrimSpace(name+" "+made) + "; exec ${0:-sh}", Stdin: true, Background: true, OnDisconnect: sandbox.Keep, Timeout: -1, MaxOutput: -1,
	}
}

// Create begins a session in the sandbox uid. One of the name that is there is
// AlreadyExists, unless it was made as the same: by the same request before.
func (e *Engine) Create(ctx context.Context, a Agent, uid, name, made string) (Session, error) {
	if err := sandbox.CheckID("name", name); err != nil {
		return Session{}, err
	}
	unlock, err := e.lock(ctx, uid, name)
	if err != nil {
		return Session{}, err
	}
	defer unlock()
	if info, err := find(ctx, a, name); err == nil {
		if _, before, _ := namesOf(&info); before != "" && before == made {
			return Session{name, info.ID, info.Started}, nil
		}
		return Session{}, sandbox.Refuse(errdefs.ErrAlreadyExists, "there is a session %s already", name)
	} else if !errdefs.IsNotFound(err) {
		return Session{}, err
	}
	if err := begin(ctx, a, name, made); err != nil {
		return Session{}, err
	}
	info, err := find(ctx, a, name)
	return Session{name, info.ID, info.Started}, err
}

// begin starts a session's shell; what is left of one before is removed.
func begin(ctx context.Context, a Agent, name, made string) error {
	if err := a.RemoveExec(ctx, ExecID(name)); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("begin session %s: %w", name, err)
	}
	p, err := a.Start(ctx, ExecID(name), command(name, made), client.Output{})
	if err != nil {
		return fmt.Errorf("begin session %s: %w", name, err)
	}
	if err := p.Detach(); err != nil {
		return fmt.Errorf("begin session %s: %w", name, err)
	}
	return nil
}

// find describes the shell of a session. One that has ended is no session.
func find(ctx context.Context, a Agent, name string) (client.ExecInfo, error) {
	info, err := a.WaitExec(ctx, ExecID(name), time.Nanosecond, false)
	if errdefs.IsNotFound(err) || err == nil && info.Result.Outcome != sandbox.Running {
		return info, sandbox.Refuse(errdefs.ErrNotFound, "there is no session %s%s", name, others(ctx, a))
	}
	if err != nil {
		return info, fmt.Errorf("find session %s: %w", name, err)
	}
	return info, nil
}

// others tells which sessions there are, for who asked for one that there is not.
func others(ctx context.Context, a Agent) string {
	all, err := list(ctx, a)
	if err != nil {
		return "" // the rest stands without it
	}
	const most = 10
	var names []string
	for _, s := range all {
		if sandbox.CheckID("name", s.Name) == nil { // the sandbox says what it runs
			names = append(names, s.Name)
		}
	}
	switch {
	case len(names) == 0:
		return ", nor any other"
	case len(names) > most:
		return fmt.Sprintf("; there are %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "; there are " + strings.Join(names, ", ")
}

// List returns the sessions of a sandbox, oldest first.
func (e *Engine) List(ctx context.Context, a Agent) ([]Session, error) { return list(ctx, a) }

func list(ctx context.Context, a Agent) ([]Session, error) {
	all, err := a.Execs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var sessions []Session
	for i := range all {
		if name, _, ok := namesOf(&all[i]); ok && all[i].Result.Outcome == sandbox.Running {
			sessions = append(sessions, Session{name, all[i].ID, all[i].Started})
		}
	}
	return sessions, nil
}

// namesOf is the name of the session that a command is the shell of, and what it was
// made as.
func namesOf(i *client.ExecInfo) (name, made string, ok bool) {
	if len(i.Argv) == 0 {
		return "", "", false
	}
	rest, ok := strings.CutPrefix(i.Argv[len(i.Argv)-1], tag)
	names, _, _ := strings.Cut(rest, ";")
	name, made, _ = strings.Cut(names, " ")
	return name, made, ok && ExecID(name) == i.ID
}

// Remove ends a session with all that runs in it.
func (e *Engine) Remove(ctx context.Context, a Agent, name string) error {
	if _, err := find(ctx, a, name); err != nil {
		return err
	}
	if err := end(ctx, a, name); err != nil {
		return fmt.Errorf("remove session %s: %w", name, err)
	}
	if err := a.RemoveExec(ctx, ExecID(name)); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove session %s: %w", name, err)
	}
	return nil
}

// end kills a session's shell and waits for its end.
func end(ctx context.Context, a Agent, name string) error {
	if err := a.SignalExec(ctx, ExecID(name), sigkill, true); err != nil && !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotFound(err) {
		return err
	}
	_, err := a.WaitExec(ctx, ExecID(name), endGrace, false)
	return err
}

const (
	sigkill  = 9
	endGrace = 10 * time.Second // the kernel needs milliseconds
)
