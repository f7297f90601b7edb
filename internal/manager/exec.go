package manager

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/failpoint"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/live"
	"agentbox/internal/sandbox"
)

// Exec is a command that a client follows. The sandbox is in use for as long as
// the command runs, also when its client is gone.
type Exec struct {
	m     *Manager
	lease *Lease
	live  *live.Box
	p     *client.Process
	own   bool   // it was started by this call, not found
	user  string // as whom it was to run; "": the image's, or it was found
	done  chan struct{}
	res   *sandbox.Result // set before done is closed, also beside err
	err   error

	again   bool // it was started by an earlier request
	once    sandbox.Once
	request sandbox.Repeatable
}

// Repeatable tells that the same request may come again.
func (e *Exec) Repeatable() bool { return e.once.Key != "" }

// Again tells that an earlier request started the command, and gave it its input.
func (e *Exec) Again() bool { return e.again }

// StartExec starts a command in the caller's sandbox and returns when it runs or
// waits for its turn. The caller either waits for it to end or leaves it with
// Detach or Abandon. One with Background is detached already. A timeout of 0 is
// the policy's, for a background command none. With a key, the same command is
// followed from its beginning instead of run again.
func (m *Manager) StartExec(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, key string) (*Exec, error) {
	once := sandbox.Once{Key: key}
	if key != "" {
		once.Request = fmt.Sprintf("%#v", cmd) // strings may have any bytes
	}
	return m.StartOnce(ctx, c, id, cmd, out, once)
}

// StartOnce is StartExec for a request that has more than the command.
func (m *Manager) StartOnce(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, once sandbox.Once) (*Exec, error) {
	cmd, err := m.policy.command(cmd)
	if err != nil {
		return nil, fmt.Errorf("run a command: %w", err)
	}
	again := false
	var request sandbox.Repeatable
	e, err := m.exec(ctx, c, id, func(l *live.Box) (p *client.Process, own bool, err error) {
		if err := failpoint.ExecBegin.Hit(); err != nil {
			return nil, false, err
		}
		execID := ids.Hex(execIDLen)
		if once.Key == "" {
			p, err = l.Start(ctx, execID, cmd, out)
			return p, true, err
		}
		if request, err = repeatable(c.Owner, once.In(l.ID)); err != nil {
			return nil, false, err
		}
		request.Made = execID
		p, again, err = m.startOnce(ctx, l, request, cmd, out)
		return p, !again, err
	})
	if err != nil {
		m.opts.Meter.Executed(nil, err)
		return nil, fmt.Errorf("run a command: %w", err)
	}
	e.again, e.once, e.request = again, once, request
	e.user = cmp.Or(cmd.User, e.lease.Sandbox().User)
	if err := failpoint.ExecStarted.Hit(); err != nil {
		_ = e.Detach() // it may have ended
		return nil, err
	}
	if cmd.Background {
		return e, e.Detach()
	}
	return e, nil
}

// execIDLen is the random bytes in the id of a command.
const execIDLen = 10

// Attach follows a command from the given offsets of its output on, whether it
// runs or ended not long ago.
func (m *Manager) Attach(ctx context.Context, c sandbox.Caller, id, execID string, stdout, stderr int64, out client.Output) (*Exec, error) {
	return m.exec(ctx, c, id, func(l *live.Box) (*client.Process, bool, error) {
		p, err := l.Session().Attach(ctx, execID, stdout, stderr, out)
		return p, false, err
	})
}

func (m *Manager) exec(ctx context.Context, c sandbox.Caller, id string, start func(*live.Box) (p *client.Process, own bool, err error)) (*Exec, error) {
	lease, err := m.Acquire(ctx, c, id)
	if err != nil {
		return nil, err
	}
	p, own, err := start(lease.live)
	if err != nil {
		defer lease.Release()
		return nil, m.explain(lease, err)
	}
	e := &Exec{m: m, lease: lease, live: lease.live, p: p, own: own, done: make(chan struct{})}
	ended, ok := m.task()
	if !ok {
		p.Abandon()
		lease.Release()
		return nil, errDraining
	}
	// No goroutine of its own waits: there may be many commands.
	end := sync.OnceFunc(func() { defer ended(); e.end() })
	stop := context.AfterFunc(m.ctx, end)
	p.AfterEnd(func() { stop(); end() })
	return e, nil
}

// explain tells of a sandbox that ended meanwhile instead of what its end broke.
func (m *Manager) explain(l *Lease, err error) error {
	select {
	case <-l.live.Ended():
		ev := l.live.HowEnded()
		sb := l.Sandbox()
		return &sandbox.StateError{Short: sb.Short, Status: sandbox.Destroying, Text: "Sandbox ended: " + string(ev.Reason)}
	default:
		return err
	}
}

// end sees to what follows the command's end, with its client and without, or the
// manager's.
func (e *Exec) end() {
	defer e.lease.Release()
	if e.res, e.err = e.live.Wait(e.m.ctx, e.p); e.err == nil {
		e.err = failpoint.ExecEnded.Hit()
	}
	close(e.done)
	runtime.Gosched() // who waits answers first: to count takes as long as that
	switch {
	case !e.own: // who started it sees to it
	case e.err != nil:
		e.m.outlast(e.lease.b, e.p.ID())
	default:
		e.m.executed(e.lease.b, e.res)
	}
}

// executed notes how a command ended, once for each.
func (m *Manager) executed(b *box, r *sandbox.Result) {
	m.opts.Meter.Executed(r, nil)
	m.noteOOM(b, r)
}

// noteOOM records that a command reached the memory limit.
func (m *Manager) noteOOM(b *box, r *sandbox.Result) {
	if r.Outcome != sandbox.OOM {
		return
	}
	ev := m.event(b.snapshot(), sandbox.EventOOM)
	ev.Reason, ev.Detail = sandbox.ReasonOOM, r.Reason
	m.addEvent(m.ctx, b, ev)
}

// outlast returns when a command that nobody follows has ended.
func (m *Manager) outlast(b *box, execID string) {
	for m.ctx.Err() == nil {
		l, err := m.reach(m.ctx, b)
		if err == nil {
			var info client.ExecInfo
			info, err = l.Session().WaitExec(m.ctx, execID, 0, false)
			if err == nil {
				l.Judge(m.ctx, &info.Result)
				m.executed(b, &info.Result)
			}
			if err == nil || connected(l) {
				return // it ended, or is not known any more
			}
		} else if b.status() != sandbox.Live || b.isGone() {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-m.ctx.Done():
		}
	}
}

// ID names the command within its sandbox.
func (e *Exec) ID() string { return e.p.ID() }

// Stdin is the command's input; closing it is end-of-file.
func (e *Exec) Stdin() io.WriteCloser { return e.p.Stdin() }

// Resize sets the size of the terminal.
func (e *Exec) Resize(cols, rows uint16) error { return e.p.Resize(cols, rows) }

// Signal sends a signal to the first process of the command, or to all of them.
func (e *Exec) Signal(ctx context.Context, signal int, tree bool) error {
	return e.live.Session().SignalExec(ctx, e.ID(), signal, tree)
}

// Wait waits until the command has ended. A command that went down with its
// sandbox has the result OOM or Lost, with the reason; an error is agentbox's own.
func (e *Exec) Wait(ctx context.Context) (*sandbox.Result, error) {
	select {
	case <-e.done:
		return e.res, e.explainUser(e.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for exec %s: %w", e.ID(), context.Cause(ctx))
	}
}

// explainUser tells of a user that the sandbox does not have, which only the guest
// knows: a command that was started finds nothing else missing that is an error.
func (e *Exec) explainUser(err error) error {
	if e.user == "" || !errdefs.IsNotFound(err) {
		return err
	}
	return &sandbox.InvalidError{
		Field: "user", Value: fmt.Sprintf("%.128s", e.user),
		Allowed: "a name in /etc/passwd of the sandbox, or a number, optionally with : and a group in its /etc/group",
	}
}

// Detach leaves the command running, whatever its OnDisconnect says.
func (e *Exec) Detach() error { return e.p.Detach() }

// Abandon leaves the command to its OnDisconnect.
func (e *Exec) Abandon() { e.p.Abandon() }
