package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/container"

	"agentbox/internal/cgroup"
	"agentbox/internal/cleanup"
	"agentbox/internal/failpoint"
	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Files that the engine's shim takes, by their number in the guest; see
// cmd/agentbox-engine.
const (
	passChannel   = 3
	passFilestore = 1000
	passArgs      = 1001
	passCgroup    = 1010

	passCgroupThreads = 1030
)

// limits are those that a caller may require.
var limits = []string{sandbox.LimitMemory, sandbox.LimitCPUs, sandbox.LimitPids, sandbox.LimitDisk}

// Create implements runtime.Runtime.
func (r *Runtime) Create(ctx context.Context, spec runtime.Spec) (err error) {
	b, undo, err := r.makeBox(ctx, spec)
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	defer b.mu.Unlock()
	defer func() { err = errors.Join(err, undo.Run()) }()
	if err := b.create(spec); err != nil {
		return fmt.Errorf("create sandbox %s: %w", ids.Short(spec.ID), err)
	}
	undo.Release()
	return nil
}

func (b *box) create(spec runtime.Spec) error {
	if err := failpoint.CreateBox.Hit(); err != nil {
		return err
	}
	if err := b.boot(spec, ""); err != nil {
		return err
	}
	b.rec.State = sandbox.Created
	if err := b.rec.save(b.dir); err != nil {
		return err
	}
	return failpoint.CreateCreated.Hit()
}

// makeBox makes the box of a new sandbox, locked, with its directory and its
// record. undo removes it and whatever was made with it afterwards.
func (r *Runtime) makeBox(ctx context.Context, spec runtime.Spec) (*box, *cleanup.Stack, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(r.canEnforce(spec.Require), checkImage(spec.Image.Path), r.checkMounts(spec.Mounts)); err != nil {
		return nil, nil, err
	}
	b := r.newBox(record{
		ID: spec.ID, Key: guest.NewKey(), State: sandbox.Creating, Created: time.Now(),
		Image: spec.Image.Digest, ImagePath: spec.Image.Path, Base: filepath.Dir(r.opts.Dir), Hostname: spec.Hostname,
		Labels: spec.Labels, Limits: spec.Limits, Require: spec.Require, Unlimited: r.notEnforced(),
		Mounts: slices.Clone(spec.Mounts),
	})
	if err := r.add(b); err != nil {
		return nil, nil, err
	}
	undo := &cleanup.Stack{}
	undo.Add(b.destroy)
	if err := b.rec.save(b.dir); err != nil {
		defer b.mu.Unlock()
		return nil, nil, errors.Join(err, undo.Run())
	}
	return b, undo, nil
}

// canEnforce refuses limits that can't be enforced here.
func (r *Runtime) canEnforce(require []string) error {
	unlimited := r.notEnforced()
	for _, l := range require {
		if !slices.Contains(limits, l) {
			return fmt.Errorf("no limit is called %q: %w", l, errdefs.ErrInvalidArgument)
		}
		if slices.Contains(unlimited, l) {
			return fmt.Errorf("the limit of %s can't be enforced here (%s): %w", l, r.opts.Cgroups.Reason(), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

func checkImage(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("image %q is no absolute path: %w", path, errdefs.ErrInvalidArgument)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("find the image: %w: %w", err, errdefs.ErrNotFound)
	}
	return nil
}

// boot makes the sandbox process, with the layer from the save in the directory
// saved, if that is not empty. It does not run user code yet.
func (b *box) boot(spec runtime.Spec, saved string) (err error) {
	l := spec.Limits
	// The number that was asked for, although the engine itself takes some 15 MiB
	// of it: an operator can add the limits up.
	if b.group, err = b.r.opts.Cgroups.Create(b.rec.ID, cgroup.Limits{Memory: l.Memory, Pids: l.Pids}); err != nil {
		return err
	}
	if err := failpoint.EngineGroup.Hit(); err != nil {
		return err
	}
	oci := b.r.newSpec(spec)
	if err := writeBundle(b.dir, oci); err != nil {
		return err
	}
	if err := b.openLayer(spec); err != nil {
		return err
	}
	files, err := b.donate(spec)
	if err != nil {
		return err
	}
	defer closeAll(files)
	err = withHiddenStreams(func() error {
		b.c, err = container.New(b.conf, container.Args{
			ID: b.rec.engineID(), Spec: oci, BundleDir: b.dir, PassFiles: files, FSRestoreImagePath: saved,
		})
		return err
	})
	if err != nil {
		return b.explain(fmt.Errorf("start the sandbox process: %w", err))
	}
	if err := failpoint.EngineBooted.Hit(); err != nil {
		return b.explain(err)
	}
	if b.rec.Process, err = identify(b.c.Sandbox.Getpid()); err != nil {
		return b.explain(err)
	}
	if b.proc, err = hold(b.rec.Process); err != nil {
		return b.explain(err)
	}
	if err := b.takeGofer(); err != nil {
		return b.explain(err)
	}
	return b.rec.save(b.dir)
}

// donate opens the files that the sandbox process is born with.
func (b *box) donate(spec runtime.Spec) (_ map[int]*os.File, err error) {
	files := map[int]*os.File{}
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	if b.conn, files[passChannel], err = streamPair(); err != nil {
		return nil, err
	}
	if len(spec.Mounts) == 0 { // else the library makes one
		if files[passFilestore], err = filestore(b.dir); err != nil {
			return nil, err
		}
	}
	if files[passArgs], err = pipeWith(strings.Join(bootFlags(spec.Limits), "\n")); err != nil {
		return nil, err
	}
	// The library forks on a thread of its own choice, so the sandbox process
	// can't be born in the group.
	join, perThread := b.group.JoinFiles()
	first := passCgroup
	if perThread {
		first = passCgroupThreads
	}
	for i, name := range join {
		if files[first+i], err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, fmt.Errorf("open cgroup: %w", err)
		}
	}
	return files, nil
}

func closeAll(files map[int]*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// filestore makes the file behind the writable layer. It has no name, so it is
// gone with the sandbox.
func filestore(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the file of the writable layer: %w", err)
	}
	// The file system knows no files without a name.
	if f, err = os.CreateTemp(dir, "layer"); err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("make the file of the writable layer: %w", err)
	}
	return f, nil
}

// pipeWith returns a pipe that holds s, which must fit into it (64 KiB), and
// then ends.
func pipeWith(s string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer w.Close()
	if _, err := w.WriteString(s); err != nil {
		r.Close()
		return nil, fmt.Errorf("fill a pipe: %w", err)
	}
	return r, nil
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, id string) error {
	b, err := r.find(id)
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("start sandbox %s: %w", ids.Short(id), err)
	}
	return nil
}

func (b *box) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !b.gone && b.canStartSaved() {
		return b.restart(ctx)
	}
	if err := b.must(sandbox.Created); err != nil {
		return err
	}
	if b.conn == nil {
		// Made by a process that is gone, and the donated stream with it.
		return fmt.Errorf("its stream is lost: %w", errdefs.ErrFailedPrecondition)
	}
	if err := b.c.Start(b.conf); err != nil {
		return b.explain(fmt.Errorf("run the agent: %w", err))
	}
	if err := failpoint.CreateAgent.Hit(); err != nil {
		return b.explain(err)
	}
	return b.started()
}

// started completes a sandbox whose agent runs, fresh or restored.
func (b *box) started() error {
	if err := guest.SendKey(b.conn, b.rec.Key); err != nil {
		return b.explain(err)
	}
	return b.live()
}

// live is the last step of a start.
func (b *box) live() error {
	// Not earlier: a quota slows the start down.
	if err := b.group.SetCPUs(b.rec.Limits.CPUs); err != nil {
		return err
	}
	b.rec.State = sandbox.Live
	if err := b.rec.save(b.dir); err != nil {
		return err
	}
	b.startWatch()
	return nil
}
