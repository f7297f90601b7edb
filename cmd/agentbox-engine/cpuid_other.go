//go:build !amd64

package main

// keepCPUID does nothing: only x86 has the instruction.
func keepCPUID() error { return nil }
