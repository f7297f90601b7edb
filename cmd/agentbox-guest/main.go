//go:build linux

// Command agentbox-guest is the agent in a sandbox: its first process, and the
// helper by which a host takes back a sandbox that it lost.
package main

import (
	"fmt"
	"os"

	"agentbox/internal/guest/pid1"
)

// build names the sources of this program. It is set by the linker; the agent
// tells it to the host.
var build = "dev"

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "init":
		err = pid1.Init(build)
	case len(os.Args) == 2 && os.Args[1] == "attach":
		err = pid1.Attach()
	case len(os.Args) == 2 && os.Args[1] == "version":
		fmt.Fprintln(os.Stdout, build)
	default:
		err = fmt.Errorf("usage: agentbox-guest init|attach|version")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentbox-guest:", err)
		os.Exit(1)
	}
}
