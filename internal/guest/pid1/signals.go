//go:build linux

package pid1

import (
	"fmt"
	"os/signal"
	"slices"
	"syscall"
)

// handled are the signals whose handlers the Go runtime needs: faults of its
// own, preemption, and broken pipes, which it turns into errors.
var handled = []syscall.Signal{
	syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGURG,
	syscall.SIGKILL, syscall.SIGSTOP, // can't be changed
}

// dropHandlers gives all other signals back to the kernel. The runtime resets
// each handler in each child that it forks; with a handler for every signal
// that is most of what a child does before its program runs, and in a sandbox
// whose processors are taken, every system call means waiting for a turn.
func dropHandlers() error {
	const last = 64
	for s := syscall.Signal(1); s <= last; s++ {
		if slices.Contains(handled, s) {
			continue
		}
		signal.Ignore(s) // the runtime forgets its handler
		if err := resetSignal(s); err != nil {
			return fmt.Errorf("reset signal %d: %w", s, err)
		}
	}
	return nil
}
