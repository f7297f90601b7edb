package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/sandbox"

	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	domain "agentbox/internal/sandbox"
)

// imageInfo is stored with a checkpoint: what a restore must agree with.
type imageInfo struct {
	Version string // of gVisor, exactly
	Image   string // digest of the root file system
	Limits  domain.Limits
}

const imageInfoFile = "agentbox.json"

// Suspend implements runtime.Suspender.
func (r *Runtime) Suspend(ctx context.Context, id, dir string) error {
	b, err := r.find(id)
	if err != nil {
		return fmt.Errorf("suspend sandbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.suspend(ctx, dir); err != nil {
		return fmt.Errorf("suspend sandbox %s: %w", ids.Short(id), err)
	}
	return nil
}

func (b *box) suspend(ctx context.Context, dir string) (err error) {
	if err := errors.Join(ctx.Err(), b.must(domain.Live)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the image's directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := writeImageInfo(dir, imageInfo{Version: gvisorVersion(), Image: b.rec.Image, Limits: b.rec.Limits}); err != nil {
		return err
	}
	// If we are killed from here on, the sandbox completes the image alone and
	// ends: then the image is the sandbox.
	b.rec.Suspending = dir
	if err := b.rec.save(b.dir); err != nil {
		return err
	}
	b.stopWatch()
	if err := b.c.Checkpoint(b.conf, dir, sandbox.CheckpointOpts{Compression: statefile.CompressionLevelNone}); err != nil {
		return errors.Join(b.explain(fmt.Errorf("write checkpoint: %w", err)), b.runOn())
	}
	if err := syncFiles(dir); err != nil {
		return err
	}
	return b.destroy()
}

// runOn goes back to ordinary life after a failed checkpoint.
func (b *box) runOn() error {
	b.rec.Suspending = ""
	if b.proc.ended() {
		b.died()
		return b.rec.save(b.dir)
	}
	b.startWatch()
	return b.rec.save(b.dir)
}

// Resume implements runtime.Suspender.
func (r *Runtime) Resume(ctx context.Context, spec runtime.Spec, dir string) (err error) {
	info, err := readImageInfo(dir)
	if err != nil {
		return fmt.Errorf("resume sandbox %s: %w", ids.Short(spec.ID), err)
	}
	want := imageInfo{Version: gvisorVersion(), Image: spec.Image.Digest, Limits: spec.Limits}
	if !reflect.DeepEqual(info, want) {
		return fmt.Errorf("resume sandbox %s: the checkpoint is of %+v, not of %+v: %w", ids.Short(spec.ID), info, want, errdefs.ErrFailedPrecondition)
	}
	b, undo, err := r.makeBox(ctx, spec)
	if err != nil {
		return fmt.Errorf("resume sandbox: %w", err)
	}
	defer b.mu.Unlock()
	defer func() { err = errors.Join(err, undo.Run()) }()
	if err := b.resume(spec, dir); err != nil {
		return fmt.Errorf("resume sandbox %s: %w", ids.Short(spec.ID), err)
	}
	undo.Release()
	return nil
}

func (b *box) resume(spec runtime.Spec, dir string) error {
	if err := b.boot(spec, ""); err != nil {
		return err
	}
	if err := b.c.Restore(b.conf, dir, false, false, nil); err != nil {
		return b.explain(fmt.Errorf("restore checkpoint: %w", err))
	}
	return b.started()
}

func writeImageInfo(dir string, i imageInfo) error {
	b, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encode the image's description: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, imageInfoFile), b, 0o600); err != nil {
		return fmt.Errorf("write the image's description: %w", err)
	}
	return nil
}

func readImageInfo(dir string) (imageInfo, error) {
	var i imageInfo
	b, err := os.ReadFile(filepath.Join(dir, imageInfoFile))
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	if errors.Is(err, os.ErrNotExist) {
		return i, fmt.Errorf("no checkpoint in %s: %w", dir, errdefs.ErrNotFound)
	}
	if err != nil {
		return i, fmt.Errorf("read the image's description: %w", err)
	}
	return i, nil
}

// syncFiles makes the files of a checkpoint survive a crash of the host.
func syncFiles(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync checkpoint: %w", err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync checkpoint: %w", err)
	}
	return nil
}
