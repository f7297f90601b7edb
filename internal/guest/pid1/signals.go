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
// has no handler for; against SIGKILL nothing helps.
var caught = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}

// needed are those whose handlers the Go runtime needs itself: faults,
// preemption, and broken pipes, which it turns into errors; and those that can't
// be changed.
var needed = []os.Signal{
	syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGURG,
	syscall.SIGKILL, syscall.SIGSTOP,
}

// takeSignals catches some signals, which nobody reads, and gives the others
// back to the kernel. The runtime resets each handler in each child that it
// forks: with one for every signal that is most of what a child does before its
// program runs, and in a sandbox whose processors are taken every system call
// waits for its turn. Ignoring signals would be no way, as children inherit it.
func takeSignals() error {
	signal.Notify(make(chan os.Signal, 1), caught...)
	const last = 64
	for s := syscall.Signal(1); s <= last; s++ {
		if slices.Contains(caught, os.Signal(s)) || slices.Contains(needed, os.Signal(s)) {
			continue
		}
		signal.Ignore(s) // the runtime forgets its handler
		if err := resetSignal(s); err != nil {
			return fmt.Errorf("reset signal %d: %w", s, err)
		}
	}
	return nil
}
