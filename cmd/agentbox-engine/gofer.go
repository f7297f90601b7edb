package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A sandbox that sees directories of the host has a second process, gVisor's
// gofer, which opens them for it.

// filestoreFlag names the file of the writable layer. Where there is a gofer,
// gVisor's library makes that file.
const filestoreFlag = "--gofer-filestore-fds="

// keepFilestore moves a layer's file that the library made to the number of one
// that we donate.
func keepFilestore(arg string) (string, error) {
	v, ok := strings.CutPrefix(arg, filestoreFlag)
	if !ok {
		return arg, nil
	}
	fd, err := strconv.Atoi(v)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", arg, err)
	}
	return moved(filestoreFlag+"%d", fd, fdFilestore)
}

// prepareGofer rids the gofer of what it inherited without need: files, and the
// environment of its maker, which gVisor's library passes on and which may hold
// secrets. What a process was started with stays readable for its life, so it is
// started again.
func prepareGofer(args []string) error {
	if slices.Contains(args, "--apply-caps=false") {
		return nil // it has executed itself once more (rootless), and is clean
	}
	if err := closeInherited(args); err != nil {
		return err
	}
	if len(os.Environ()) == 0 {
		return nil
	}
	if err := unix.Exec("/proc/self/exe", args, nil); err != nil {
		return fmt.Errorf("start the gofer without an environment: %w", err)
	}
	return nil
}
