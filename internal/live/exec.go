package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Start starts a command; its result comes from [Box.Wait]. In a sandbox that
// has ended the error says why.
func (b *Box) Start(ctx context.Context, id string, cmd sandbox.Command, out client.Output) (*client.Process, error) {
	before := b.oomKills(ctx)
	s := b.Session()
	p, err := s.Start(ctx, id, cmd, out)
	if err != nil {
		// The session may not have noticed yet that its stream is gone.
		if s.Err() == nil && !errdefs.IsUnavailable(err) {
			return nil, err
		}
		return nil, errors.Join(b.why(ctx, err), err)
	}
	b.mu.Lock()
	b.kills[p.ID()] = before
	b.mu.Unlock()
	return p, nil
}

// oomKills is how many processes of the sandbox the host killed for their
// memory; 0 where the back end can't tell.
func (b *Box) oomKills(ctx context.Context) int64 {
	r, ok := runtime.As[runtime.OOMReader](b.host.rt)
	if !ok {
		return 0
	}
	n, err := r.OOMKills(ctx, b.ID)
	if err != nil {
		return 0 // then nothing is claimed
	}
	return n
}

// Wait waits for p. A command that went down with the sandbox has the result
// OOM or Lost, with the reason; an error is agentbox's own.
func (b *Box) Wait(ctx context.Context, p *client.Process) (*sandbox.Result, error) {
	res, err := p.Wait(ctx)
	if ctx.Err() != nil && err != nil {
		return res, ctx.Err()
	}
	if err == nil && res.Outcome != sandbox.Lost {
		b.Judge(ctx, res)
		return res, nil
	}
	ev := b.death(ctx, err)
	if ev == nil {
		return res, err
	}
	res.Outcome, res.Reason = sandbox.Lost, deathText(*ev)
	if ev.Reason == sandbox.ReasonOOM {
		b.outOfMemory(res)
	}
	return res, nil
}

// Judge makes a result OOM if the host's out-of-memory killer is behind it. The
// agent can't know that. The first judgement of a command counts; of commands that
// another process started nothing is known.
func (b *Box) Judge(ctx context.Context, r *sandbox.Result) {
	if r.Outcome == sandbox.Running {
		return
	}
	b.mu.Lock()
	before, mine := b.kills[r.ExecID]
	_, oom := b.ooms[r.ExecID]
	b.mu.Unlock()
	oom = oom || mine && killed(r) && b.oomKills(ctx) > before
	b.mu.Lock()
	delete(b.kills, r.ExecID)
	if oom {
		if len(b.ooms) >= maxVerdicts {
			clear(b.ooms)
		}
		b.ooms[r.ExecID] = struct{}{}
	}
	b.mu.Unlock()
	if oom {
		b.outOfMemory(r)
	}
}

// maxVerdicts is how many judgements are kept for those who ask again.
const maxVerdicts = 1024

// killed reports a result that the host's out-of-memory killer may be behind:
// SIGKILL, of the command itself or of the one that a shell waited for. The host
// takes the biggest process where it can, and the sandbox lives on.
func killed(r *sandbox.Result) bool {
	const sigkill = 9
	return r.Outcome == sandbox.Signaled && r.Signal == sigkill || r.Outcome == sandbox.Exited && r.ExitCode == 128+sigkill
}

func (b *Box) outOfMemory(r *sandbox.Result) {
	r.Outcome, r.Signal, r.ExitCode = sandbox.OOM, 9, 0
	r.Reason = b.memoryText()
}

func (b *Box) memoryText() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("the memory limit of %s was reached", sandbox.FormatSize(b.limits.Memory))
}

// death waits briefly for the back end's word on why the sandbox ended: it
// comes some milliseconds after the stream broke. A sandbox whose agent answered,
// be it with an error, is not waited for.
func (b *Box) death(ctx context.Context, failed error) *runtime.Event {
	if client.Told(failed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case <-b.end.done:
		return &b.end.event
	case <-ctx.Done():
		return nil
	}
}

// why is the sandbox's death as an error, nil when it lives. failed is what
// raises the question.
func (b *Box) why(ctx context.Context, failed error) error {
	if ev := b.death(ctx, failed); ev != nil {
		if ev.Reason == sandbox.ReasonOOM {
			return errors.New(b.memoryText())
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
