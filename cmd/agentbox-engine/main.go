// Command agentbox-engine is what every sandbox process of the gVisor back end
// executes: gVisor's runsc without the parts that a sandbox does not need, so
// that its private memory and its start stay small.
//
// The back end makes sandboxes in its own process and starts this program as
// the sandbox ("boot"). Started by hand it is runsc's command line for looking
// at sandboxes: list, state, ps, exec, debug and so on.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	_ "unsafe" // linkname

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// gvisorVersion is what gVisor writes into checkpoints and demands when it
// restores one. It is normally set by a linker flag; taking it from the build
// information makes every build of this module right.
//
//go:linkname gvisorVersion gvisor.dev/gvisor/runsc/version.version
var gvisorVersion string

func main() {
	if v := moduleVersion("gvisor.dev/gvisor"); v != "" {
		gvisorVersion = v
	}
	args, err := bootArgs(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentbox-engine:", err)
		os.Exit(128) // as runsc does for errors of its own
	}
	os.Args = args
	cli.Run(nil, commands(), nil)
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}

// commands are those that sandboxes need and those that help to look into one.
// gVisor's full set would embed 47 MB of helper programs that nothing here
// starts.
func commands() map[util.SubCommand]string {
	const internal, user = "internal use only", ""
	return map[util.SubCommand]string{
		new(boot):             internal,
		new(sentrycmd.Umount): internal,
		new(cmd.Gofer):        internal,

		new(cmd.Debug):       user,
		new(cmd.Delete):      user,
		new(cmd.Do):          user,
		new(cmd.Events):      user,
		new(cmd.Exec):        user,
		new(cmd.Kill):        user,
		new(cmd.List):        user,
		new(cmd.PS):          user,
		new(cmd.Pause):       user,
		new(cmd.ReadControl): user,
		new(cmd.Resume):      user,
		new(cmd.State):       user,
		new(cmd.Usage):       user,
		new(cmd.Wait):        user,
	}
}
