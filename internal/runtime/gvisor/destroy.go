package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"agentbox/internal/failpoint"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Destroy implements runtime.Runtime.
func (r *Runtime) Destroy(ctx context.Context, id string) error {
	b, err := r.find(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.destroy(); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", ids.Short(id), err)
	}
	return nil
}

// destroy removes everything of the sandbox; its directory is last, because it
// is what a later process finds.
func (b *box) destroy() error {
	if b.gone {
		return nil
	}
	if err := b.clear(); err != nil {
		return err
	}
	if err := failpoint.DestroyCleared.Hit(); err != nil {
		return err
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("remove the sandbox's directory: %w", err)
	}
	b.gone = true
	b.r.forget(b.rec.ID)
	return nil
}

// clear ends the sandbox on the host and removes everything of it but its
// directory.
func (b *box) clear() error {
	b.stopWatch()
	b.hangUp()
	if err := b.endProcess(); err != nil {
		return err
	}
	if err := failpoint.EngineKilled.Hit(); err != nil {
		return err
	}
	if err := errors.Join(b.removeState(), b.removeGroup()); err != nil {
		return err
	}
	if b.rec.Reason == sandbox.ReasonCrashed {
		if err := b.r.keepCrash(b); err != nil {
			b.r.log.Warn("the log of a crash is lost", "sandbox", b.rec.ID, "error", err)
		}
	}
	if err := os.Remove(panicLog(b.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the panic log: %w", err)
	}
	return nil
}

// endProcess kills the sandbox process and its gofer, and those that no record
// tells of because their creator was killed first.
func (b *box) endProcess() error {
	var errs []error
	if b.proc != nil {
		errs = append(errs, b.proc.kill())
		b.proc.close()
		b.proc = nil
	}
	reap(b.rec.Process) // also one that was found dead
	errs = append(errs, b.endGofer())
	for _, id := range findSandboxProcesses(b.r.runDir(), b.rec.engineID()) {
		p, err := hold(id)
		if err != nil {
			continue // dead already
		}
		errs = append(errs, p.kill())
		p.close()
		reap(id)
	}
	return errors.Join(errs...)
}

// removeState removes gVisor's files of the sandbox.
func (b *box) removeState() error {
	b.c = nil
	id := b.rec.engineID()
	stem := filepath.Join(b.r.runDir(), id+"_sandbox:"+id)
	var errs []error
	for _, f := range []string{stem + ".state", stem + ".lock", filepath.Join(b.r.runDir(), "runsc-"+id+".sock")} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove gVisor's state: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (b *box) removeGroup() error {
	if b.group == nil {
		g, err := b.r.opts.Cgroups.Open(b.rec.ID)
		if err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
		b.group = g
	}
	if err := b.group.Kill(); err != nil {
		return err
	}
	if err := b.group.Remove(); err != nil {
		return err
	}
	b.group = nil
	return nil
}

// maxCrashes is the number of panic logs that are kept.
const maxCrashes = 20

// keepCrash keeps what matters of the panic log of a crashed sandbox.
func (r *Runtime) keepCrash(b *box) error {
	said := logEnds(panicLog(b.dir), maxCrashLog)
	if said == "" {
		return nil
	}
	if err := os.MkdirAll(r.crashesDir(), 0o700); err != nil {
		return fmt.Errorf("keep panic log: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.crashesDir(), b.rec.ID+".log"), []byte(said), 0o600); err != nil {
		return fmt.Errorf("keep panic log: %w", err)
	}
	files, err := os.ReadDir(r.crashesDir())
	if err != nil {
		return fmt.Errorf("list panic logs: %w", err)
	}
	age := func(e os.DirEntry) int64 {
		if i, err := e.Info(); err == nil {
			return i.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(files, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, e := range files[:max(0, len(files)-maxCrashes)] {
		if err := os.Remove(filepath.Join(r.crashesDir(), e.Name())); err != nil {
			return fmt.Errorf("drop old panic log: %w", err)
		}
	}
	return nil
}
