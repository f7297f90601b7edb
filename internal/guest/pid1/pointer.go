//go:build linux

package pid1

import "unsafe"

// pointer passes memory to a raw system call that does not keep it.
func pointer(p *uint32) uintptr { return uintptr(unsafe.Pointer(p)) }
