package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
)

// stopGrace is how long a program may take to end after its image's stop
// signal, as in Docker.
const stopGrace = 10 * time.Second

// firstRealtime is SIGRTMIN as C libraries have it.
const firstRealtime = 34

// stopSignal is the number of a signal that an image names: "SIGQUIT", "QUIT",
// "3", "SIGRTMIN+3". 0 when it names none that exists.
func stopSignal(name string) int {
	const last = 64
	n, err := strconv.Atoi(name)
	if err != nil {
		name = "SIG" + strings.TrimPrefix(name, "SIG")
		if offset, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
			n, _ = strconv.Atoi(strings.TrimPrefix(offset, "+")) // the first one alone
			n += firstRealtime
		} else {
			n = int(unix.SignalNum(name))
		}
	}
	if n < 0 || n > last {
		return 0
	}
	return n
}

// orderly delays the end that SIGTERM brings where the image names a signal to
// stop by: its program gets that signal, and some time.
func (r *runner) orderly(parent context.Context, sb *local.Sandbox, p *client.Process) (ctx context.Context, stop func()) {
	if r.stopSignal == 0 {
		return parent, func() {}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-parent.Done():
		}
		var by interrupted
		if errors.As(context.Cause(parent), &by) && by.signal == syscall.SIGTERM {
			_ = sb.Session().SignalExec(ctx, p.ID(), r.stopSignal, false) // it ends in any case
			select {
			case <-ctx.Done():
				return
			case <-time.After(stopGrace):
			}
		}
		cancel(context.Cause(parent))
	}()
	return ctx, func() { cancel(nil) }
}
