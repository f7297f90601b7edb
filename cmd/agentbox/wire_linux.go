package main

import (
	"agentbox/internal/cli"
	"agentbox/internal/wire"
)

func backend() *cli.Local { return wire.Local() }
