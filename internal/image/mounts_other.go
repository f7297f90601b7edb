//go:build !linux

package image

// detachMounts does nothing: images are built on Linux only.
func detachMounts(string) error { return nil }
