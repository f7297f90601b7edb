//go:build !linux

package image

import "os/exec"

// Images are built on Linux only.

func endWithUs(*exec.Cmd)           {}
func privateMounts(*exec.Cmd)       {}
func interrupt(cmd *exec.Cmd) error { return cmd.Process.Kill() }
func memoryForScratch() int64       { return 0 }
