//go:build linux

// Command agentbox-guest is the agent in a sandbox: its first process, and the
// helpers that a host executes in it: to take back a sandbox that it lost, and
// to keep what the save of a stopped one can't.
package main

import (
	"fmt"
	"os"
	"runtime"

	"agentbox/internal/guest/attrs"
	"agentbox/internal/guest/pid1"
)

// build names the sources of this program. It is set by the linker; the agent
// tells it to the host.
var build = "dev"

// Descriptors of the helpers.
const (
	helperIn  = 3
	helperOut = 4
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "init":
		err = pid1.Init(build)
	case len(os.Args) == 2 && os.Args[1] == "attach":
		err = pid1.Attach()
	case len(os.Args) == 2 && os.Args[1] == "read-attrs":
		runtime.GOMAXPROCS(1) // threads that wake each other are dear in a sandbox
		err = attrs.Read(os.NewFile(helperIn, "tree"), "/", os.NewFile(helperOut, "note"))
	case len(os.Args) == 2 && os.Args[1] == "apply-attrs":
		runtime.GOMAXPROCS(1)
		err = attrs.Apply(os.NewFile(helperIn, "note"), "/")
	case len(os.Args) == 2 && os.Args[1] == "version":
		fmt.Fprintln(os.Stdout, build)
	default:
		err = fmt.Errorf("usage: agentbox-guest init|attach|read-attrs|apply-attrs|version")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentbox-guest:", err)
		os.Exit(1)
	}
}
