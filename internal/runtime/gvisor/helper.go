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
	verb  string
	caps  []linux.Capability
	files []*os.File // descriptors 3 and up

	pid    int32
	stderr *os.File
}

// start starts the helper in the sandbox. If it returns nil the caller calls end.
func (h *helper) start(ctx context.Context, b *box) (err error) {
	program, err := os.Open(b.r.opts.GuestPath)
	if err != nil {
		return fmt.Errorf("open the %s helper: %w", h.verb, err)
	}
	defer program.Close()
	null, err := emptyFile()
	if err != nil {
		return err
	}
	defer null.Close()
	fd, err := unix.MemfdCreate("agentbox-helper", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	h.stderr = os.NewFile(uintptr(fd), "agentbox-helper")
	defer func() {
		if err != nil {
			h.stderr.Close()
		}
	}()
	files := map[int]*os.File{0: null, 1: null, 2: h.stderr}
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
	err = bounded(ctx, func() (err error) {
		h.pid, err = b.c.Execute(b.conf, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("execute the %s helper: %w", h.verb, err)
	}
	return nil
}

// maxComplaint is how much of a helper's standard error an error carries.
const maxComplaint = 1 << 10

// errHelperFailed says that a helper came to its end, and that this was no success.
var errHelperFailed = errors.New("failed")

// end waits for the end of the helper, which must be a success.
func (h *helper) end(ctx context.Context, b *box) error {
	defer h.stderr.Close()
	var ws unix.WaitStatus
	err := bounded(ctx, func() (err error) {
		ws, err = b.c.WaitPID(h.pid)
		return err
	})
	if err != nil {
		_ = b.c.SignalProcess(unix.SIGKILL, h.pid) // best effort: the error is told
		return fmt.Errorf("wait for a helper: %w", err)
	}
	if ws.Exited() && ws.ExitStatus() == 0 {
		return nil
	}
	text := make([]byte, maxComplaint)
	n, err := h.stderr.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the %s helper's complaint: %w", h.verb, err)
	}
	return fmt.Errorf("the %s helper %w (%#x): %s", h.verb, errHelperFailed, uint32(ws), strings.TrimSpace(printable(string(text[:n]))))
}

// run runs the helper to its end, which must be a success.
func (h *helper) run(ctx context.Context, b *box) error {
	if err := h.start(ctx, b); err != nil {
		return err
	}
	return h.end(ctx, b)
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
