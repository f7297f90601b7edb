//go:build !linux

package main

import "agentbox/internal/cli"

// backend is nil: sandboxes run on Linux, this build is a client.
func backend() *cli.Local { return nil }
