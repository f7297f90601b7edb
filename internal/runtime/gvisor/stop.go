package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/failpoint"
	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Stop implements runtime.Runtime.
func (r *Runtime) Stop(ctx context.Context, id string) error {
	b, err := r.find(id)
	if err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.stop(ctx); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", ids.Short(id), err)
	}
	return nil
}

// stop saves the layer, and ends the sandbox when that is certain. The record
// is what decides: until it names the new save the sandbox runs, and the save
// before is the last good one.
func (b *box) stop(ctx context.Context) error {
	if !b.gone && b.rec.State == sandbox.Stopped && b.hasRemains() {
		return b.rest() // which failed before
	}
	if err := errors.Join(ctx.Err(), b.must(sandbox.Live)); err != nil {
		return err
	}
	b.hangUp()
	if err := b.killAll(ctx); err != nil {
		return b.explain(err)
	}
	if err := failpoint.StopKilled.Hit(); err != nil {
		return err
	}
	number := 1
	if b.rec.Saved != nil {
		number = b.rec.Saved.Number + 1
	}
	s, err := b.writeSave(ctx, number)
	if err == nil {
		err = failpoint.StopSaved.Hit()
	}
	if err != nil {
		return errors.Join(b.explain(err), b.sweepSaves())
	}
	b.stopWatch()
	before := b.rec
	b.rec.State, b.rec.Saved = sandbox.Stopped, s
	if err := b.rec.saveSynced(b.dir); err != nil {
		return errors.Join(err, b.takeBack(before))
	}
	if err := failpoint.StopSealed.Hit(); err != nil {
		return err
	}
	return b.rest()
}

// takeBack undoes a stop whose record may have been written or not.
func (b *box) takeBack(before record) error {
	b.rec = before
	b.startWatch()
	if err := b.rec.save(b.dir); err != nil {
		return err // the save stays: the record may name it
	}
	return b.sweepSaves()
}

// rest removes what a stopped sandbox does not need: everything but its record
// and its save.
func (b *box) rest() error {
	if err := errors.Join(b.clear(), b.sweepSaves()); err != nil {
		return err
	}
	b.rec.Process, b.rec.Gofer, b.rec.Starting = procID{}, procID{}, false
	return b.rec.save(b.dir)
}

// hasRemains reports whether a stopped sandbox may have more than its record and
// its save.
func (b *box) hasRemains() bool { return b.rec.Starting || b.rec.Process != (procID{}) }

// hangUp ends the streams to the agent.
func (b *box) hangUp() {
	for _, conn := range []net.Conn{b.conn, b.inUse} {
		if conn != nil {
			conn.Close() // its owner may have done so
		}
	}
	b.conn, b.inUse = nil, nil
}

// killTime bounds the killing of all processes, whose memory has to be freed.
const killTime = 20 * time.Second

// killAll ends every process in the sandbox but the agent. Without processes
// nobody writes, and files without a name are gone.
func (b *box) killAll(ctx context.Context) error {
	// A round is not left in the middle, where it would go on by itself.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	for {
		left := 0
		err := bounded(limit, func() (err error) {
			left, err = b.killRound()
			return err
		})
		if err != nil {
			return fmt.Errorf("end the sandbox's processes: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-limit.Done():
			return fmt.Errorf("end the sandbox's processes: %d are left: %w", left, limit.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killRound kills the processes that there are and returns their number. They
// are halted first: some make new ones faster than they can be killed. The whole
// kernel is not paused for it, because nobody could tell afterwards that it is
// when this process is killed.
func (b *box) killRound() (n int, err error) {
	cid := b.rec.engineID()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		all, err := b.c.Sandbox.Processes(cid)
		if err != nil {
			return 0, err
		}
		n = 0
		for _, p := range all {
			if p.PID == 1 {
				// Guest root may have frozen the agent, which has to reap the others.
				_ = b.c.Sandbox.SignalProcess(cid, 1, unix.SIGCONT, false)
				continue
			}
			n++
			_ = b.c.Sandbox.SignalProcess(cid, int32(p.PID), sig, false) // fails for one that has ended
		}
	}
	return n, nil
}

// restart brings a sandbox back from its save. When it fails, the sandbox is
// stopped as before.
func (b *box) restart(ctx context.Context) error {
	dir := saveDir(b.dir, b.rec.Saved.Number)
	image := checkImage(b.rec.ImagePath)
	if errdefs.IsNotFound(image) { // it is not the sandbox that is not there
		image = sandbox.Refuse(errdefs.ErrFailedPrecondition, "the image that the sandbox was made of is gone from the server: %s", filepath.Base(b.rec.ImagePath))
	}
	err := errors.Join(b.r.canEnforce(b.rec.Require), image, b.r.checkMounts(b.rec.Mounts))
	if err == nil {
		err = b.rec.Saved.verify(dir)
	}
	if err == nil {
		err = b.clear() // of a sandbox that crashed
	}
	if err != nil {
		return err
	}
	b.rec.State, b.rec.Reason, b.rec.Starting = sandbox.Stopped, sandbox.ReasonNone, true
	b.rec.Key, b.rec.Unlimited = guest.NewKey(), b.r.notEnforced()
	if err := b.rec.save(b.dir); err != nil {
		return err
	}
	if err = failpoint.StartBegun.Hit(); err == nil {
		err = b.bootSaved(ctx, dir)
	}
	if err != nil {
		err = b.explain(err)
		b.rec.State = sandbox.Stopped
		return errors.Join(err, b.rest())
	}
	return nil
}

func (b *box) bootSaved(ctx context.Context, dir string) error {
	if err := b.boot(b.rec.spec(), dir); err != nil {
		return err
	}
	if err := b.c.Start(b.conf); err != nil {
		return fmt.Errorf("run the agent: %w", err)
	}
	if err := bounded(ctx, b.c.WaitFSRestore); err != nil {
		return fmt.Errorf("read the saved files: %w", err)
	}
	if err := failpoint.StartRestored.Hit(); err != nil {
		return err
	}
	if err := guest.SendKey(b.conn, b.rec.Key); err != nil {
		return err
	}
	if err := failpoint.StartKeyed.Hit(); err != nil {
		return err
	}
	// The agent waits for a session from here on. A helper that came earlier
	// would be in its way: while a process is where it does not expect one, it
	// can't set up the control groups that limit the guest's processes.
	if err := awaitTaken(ctx, b.conn); err != nil {
		return fmt.Errorf("wait for the agent: %w", err)
	}
	note, err := os.Open(filepath.Join(dir, attrsFile))
	if err != nil {
		return fmt.Errorf("open the saved attributes: %w", err)
	}
	defer note.Close()
	h := helper{verb: "apply-attrs", caps: attrsCaps, files: []*os.File{note}}
	if err := h.run(ctx, b); err != nil {
		return err
	}
	if err := failpoint.StartApplied.Hit(); err != nil {
		return err
	}
	b.rec.Starting = false
	return b.live()
}

// canStartSaved reports whether there are saved files to start from. A sandbox
// that crashed has those of its last stop.
func (b *box) canStartSaved() bool {
	return b.rec.Saved != nil && (b.rec.State == sandbox.Stopped || b.rec.State == sandbox.Failed)
}
