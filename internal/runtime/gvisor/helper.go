package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
)

// helper is the agent's program, executed in a sandbox from a file of the host,
// so that user code can't replace it.
type helper struct {
	verb   string
	caps   []linux.Capability
	files  []*os.File // descriptors 3 and up
	stderr *os.File   // nil: nobody reads it
}

// execHelper starts a helper and returns its pid in the sandbox.
func (b *box) execHelper(ctx context.Context, h helper) (int32, error) {
	program, err := os.Open(b.r.opts.GuestPath)
	if err != nil {
		return 0, fmt.Errorf("open the %s helper: %w", h.verb, err)
	}
	defer program.Close()
	null, err := emptyFile()
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := map[int]*os.File{0: null, 1: null, 2: null}
	if h.stderr != nil {
		files[2] = h.stderr
	}
	for i, f := range h.files {
		files[3+i] = f
	}
	caps := auth.CapabilitySetOfMany(h.caps)
	args := &control.ExecArgs{
		Argv:             []string{"agentbox-guest", h.verb},
		WorkingDirectory: "/",
		NoNewPrivileges:  true,
		Capabilities:     &auth.TaskCapabilities{PermittedCaps: caps, EffectiveCaps: caps, BoundingCaps: caps},
		FilePayload:      control.NewFilePayload(files, program),
	}
	var pid int32
	err = bounded(ctx, func() (err error) {
		pid, err = b.c.Execute(b.conf, args)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("execute the %s helper: %w", h.verb, err)
	}
	return pid, nil
}

// reapHelper waits for the end of a helper.
func (b *box) reapHelper(ctx context.Context, pid int32) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	err := bounded(ctx, func() (err error) {
		ws, err = b.c.WaitPID(pid)
		return err
	})
	if err != nil {
		_ = b.c.SignalProcess(unix.SIGKILL, pid) // best effort: the error is told
		return 0, fmt.Errorf("wait for a helper: %w", err)
	}
	return ws, nil
}

// maxComplaint is how much of a helper's standard error an error carries.
const maxComplaint = 1 << 10

// runHelper runs a helper to its end, which must be a success.
func (b *box) runHelper(ctx context.Context, h helper) error {
	fd, err := unix.MemfdCreate("agentbox-helper", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	h.stderr = os.NewFile(uintptr(fd), "agentbox-helper")
	defer h.stderr.Close()
	pid, err := b.execHelper(ctx, h)
	if err != nil {
		return err
	}
	ws, err := b.reapHelper(ctx, pid)
	if err == nil && (!ws.Exited() || ws.ExitStatus() != 0) {
		text := make([]byte, maxComplaint)
		n, readErr := h.stderr.ReadAt(text, 0)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return fmt.Errorf("read the %s helper's complaint: %w", h.verb, readErr)
		}
		err = fmt.Errorf("the %s helper failed (%#x): %s", h.verb, uint32(ws), strings.TrimSpace(printable(string(text[:n]))))
	}
	return err
}

// bounded runs f, a call into the sandbox that has no way to be stopped, but no
// longer than ctx. f ends with the sandbox at last.
func bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
