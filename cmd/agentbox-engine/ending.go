package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/subcommands"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/flag"
)

// endNote begins the last line of the panic log of a sandbox whose first process
// ended; the exit code follows. The back end reads it.
const endNote = "agentbox-engine: the first process ended with "

// boot is gVisor's command that is the sandbox. At its end it notes how the first
// process ended. Who owns the sandbox then need not be the parent of this process,
// nor have been there, and gVisor's own answer reaches only who asked in time.
type boot struct{ sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b *boot) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	code := b.Boot.Execute(ctx, f, args...)
	if code == subcommands.ExitSuccess {
		fmt.Fprintf(os.Stderr, "\n%s%d\n", endNote, exitCode(*args[1].(*unix.WaitStatus)))
	}
	return code
}

// exitCode is what a shell makes of a wait status.
func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
