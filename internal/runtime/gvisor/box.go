package gvisor

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/errdefs"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"agentbox/internal/cgroup"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// box is one sandbox. mu serializes everything that is done with it.
type box struct {
	r    *Runtime
	dir  string
	conf *config.Config

	// mu is held by who changes the sandbox, and shared by who looks at it. An Attach
	// only looks, since it takes long where the agent does not answer.
	mu    sync.RWMutex
	rec   record
	group *cgroup.Group
	c     *container.Container // nil when gVisor's state is lost
	proc  *process             // nil when there is no live process
	conn  net.Conn             // our end of the donated stream, until Attach
	hand  sync.Mutex           // one Attach at a time
	inUse net.Conn             // the stream with the agent's session
	watch *watcher             // nil before Start
	gone  bool                 // destroyed
}

func (r *Runtime) newBox(rec record) *box {
	dir := r.boxDir(rec.ID)
	return &box{r: r, dir: dir, rec: rec, conf: forSandbox(r.conf, rec.Limits, panicLog(dir))}
}

// recoverBox makes the box of a sandbox that another process left. Whatever can
// be wrong with it, the box can be destroyed.
func (r *Runtime) recoverBox(id string) *box {
	rec, err := loadRecord(r.boxDir(id), id)
	b := r.newBox(rec)
	if err == nil {
		err = b.takeUp()
	}
	if err != nil {
		r.log.Warn("a sandbox that was left can only be removed", "sandbox", id, "error", err)
	}
	return b
}

// takeUp finds the sandbox's process and gVisor's state of it.
func (b *box) takeUp() (err error) {
	if err := b.sweepSaves(); err != nil {
		return err
	}
	if b.rec.State == sandbox.Stopped {
		if b.hasRemains() {
			return b.rest() // killed at the end of Stop or in Start
		}
		return nil
	}
	if b.group, err = b.r.opts.Cgroups.Open(b.rec.ID); err != nil {
		return fmt.Errorf("open cgroup: %w", err)
	}
	if b.proc, err = hold(b.rec.Process); err != nil {
		b.died()
		return nil // an ordinary end: List tells
	}
	id := b.rec.engineID()
	c, err := container.Load(b.r.runDir(), container.FullID{SandboxID: id, ContainerID: id},
		container.LoadOpts{Exact: true, SkipCheck: true, TryLock: container.TryAcquire})
	if err != nil {
		b.rec.State, b.rec.Reason = sandbox.Failed, sandbox.ReasonCrashed
		return fmt.Errorf("load gVisor's state: %w", err)
	}
	if c.Sandbox == nil || c.Sandbox.Getpid() != b.rec.Process.Pid {
		b.rec.State, b.rec.Reason = sandbox.Failed, sandbox.ReasonCrashed
		return errors.New("gVisor's state names another process than the record")
	}
	b.c = c
	switch b.rec.State {
	case sandbox.Created, sandbox.Creating:
		// Killed in Start: the agent may run, but it never got its key.
		if c.Status != container.Created {
			b.rec.State, b.rec.Reason = sandbox.Failed, sandbox.ReasonCrashed
			return errors.New("it was left half started")
		}
		b.rec.State = sandbox.Created
	case sandbox.Live:
		if c.Status == container.Paused {
			if err := c.Resume(); err != nil {
				return fmt.Errorf("resume: %w", err)
			}
		}
		b.startWatch()
	}
	return nil
}

// died notes that there is no live process, for List.
func (b *box) died() {
	if b.rec.State == sandbox.Creating || b.rec.State == sandbox.Failed {
		return
	}
	b.rec.State = sandbox.Failed
	b.rec.Reason, _ = b.causeOfDeath()
}

// must checks the state of a sandbox for a call that needs it to be want.
func (b *box) must(want sandbox.State) error {
	if b.gone {
		return fmt.Errorf("sandbox was destroyed: %w", errdefs.ErrNotFound)
	}
	if b.rec.State != want {
		return fmt.Errorf("sandbox is %s, not %s: %w", b.rec.State, want, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func (b *box) info() runtime.Info {
	b.mu.RLock()
	defer b.mu.RUnlock()
	i := runtime.Info{
		ID: b.rec.ID, State: b.rec.State, Reason: b.rec.Reason, Created: b.rec.Created,
		Labels: b.rec.Labels, Limits: b.rec.Limits, NotEnforced: b.rec.Unlimited,
	}
	if b.rec.Saved != nil {
		i.Saved = b.rec.Saved.Time
	}
	if b.proc != nil {
		i.Pid = b.proc.id.Pid
	}
	return i
}

// letGo drops what this process holds of the sandbox, which lives on.
func (b *box) letGo() {
	b.stopWatch()
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
	if b.proc != nil {
		b.proc.close()
		b.proc = nil
	}
	if b.group != nil {
		_ = b.group.Close() // a file that was only read
	}
}
