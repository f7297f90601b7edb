package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// fdFlag matches the flags by which gVisor names donated files.
var fdFlag = regexp.MustCompile(`^--[a-z-]+-fds?=([0-9]+)(?::[0-9]+)?$`)

// donated returns the file descriptors that a command line names.
func donated(args []string) map[int]bool {
	fds := map[int]bool{}
	for _, arg := range args {
		if m := fdFlag.FindStringSubmatch(arg); m != nil {
			if fd, err := strconv.Atoi(m[1]); err == nil {
				fds[fd] = true
			}
		}
	}
	return fds
}

// closeInherited closes the files that this process inherited without being
// meant to. gVisor's library opens its control sockets without close-on-exec, so
// a sandbox process would hold those of every other sandbox of its maker, and a
// maker of many sandboxes would run into the numbers that boot needs.
func closeInherited(args []string) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list inherited files: %w", err)
	}
	keep := donated(args)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || keep[fd] {
			continue
		}
		// What this process opened itself is close-on-exec: it was not inherited.
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close inherited file %d: %w", fd, err)
		}
	}
	return nil
}
