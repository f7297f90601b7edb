//go:build !amd64

package main

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// compiledFilters: none were generated for this architecture, so each sandbox
// compiles its own.
func compiledFilters() map[string]precompiledseccomp.Program { return nil }
