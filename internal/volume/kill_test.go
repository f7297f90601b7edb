//go:build linux

package volume_test

func killedChild() bool { return false }
