//go:build linux

package pid1

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// caught are the signals by which guest root might end the agent without
// meaning to. Not every kernel protects the first process from signals that it
// has no handler for; against SIGKILL, and those that nobody sends, nothing is
// done.
var caught = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	// The runtime needs a handler for these anyway: faults, and broken pipes,
	// which it turns into errors.
	syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGPIPE,
}

// untouched are SIGURG, with which the runtime preempts goroutines, and those
// that can't be changed.
var untouched = []os.Signal{syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP}

// takeSignals catches some signals, which nobody reads, and gives the others
// back to the kernel. The runtime resets each handler in each child that it
// forks: with one for every signal that is most of what a child does before its
// program runs, and in a sandbox whose processors are taken every system call
// waits for its turn. Ignoring signals would be no way, as children inherit it.
func takeSignals() error {
	signal.Notify(make(chan os.Signal, 1), caught...)
	const last = 64
	for s := syscall.Signal(1); s <= last; s++ {
		if slices.Contains(caught, os.Signal(s)) || slices.Contains(untouched, os.Signal(s)) {
			continue
		}
		signal.Ignore(s) // the runtime forgets its handler
		if err := resetSignal(s); err != nil {
			return fmt.Errorf("reset signal %d: %w", s, err)
		}
	}
	return nil
}
