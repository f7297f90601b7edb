//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// RootCapabilities are what a command of guest root has: Docker's default set
// without NET_RAW and MKNOD.
var RootCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
}

// Children inherit the bounding set and no_new_privs of the thread that forks
// them. Both can only be lowered.

// forker runs f, which forks, on a thread of the right kind.
type forker func(f func()) error

// confined runs f on a thread whose children can gain nothing. Any thread will
// do: this process itself never executes a program, so none of its threads
// loses anything.
func confined(f func()) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err == nil && set == 0 {
		err = confine(nil, true) // sets no_new_privs last
	}
	if err == nil {
		f()
	}
	return err
}

// plain runs f on the one thread that is never confined: its children keep the
// capabilities of guest root. It must be made before any thread is confined,
// because new threads take after those that start them.
type plain struct{ work chan func() }

func newPlain() (*plain, error) {
	p := &plain{make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may confine it
		ready <- confine(RootCapabilities, false)
		for w := range p.work {
			w()
		}
	}()
	if err := <-ready; err != nil {
		close(p.work)
		return nil, err
	}
	return p, nil
}

func (p *plain) do(f func()) error {
	done := make(chan struct{})
	p.work <- func() { f(); close(done) }
	<-done
	return nil
}

func confine(bound []uintptr, noNewPrivs bool) error {
	held, err := boundingSet()
	if err != nil {
		return fmt.Errorf("read the bounding set: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(bound, c) || held&(1<<c) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if noNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	return nil
}

// boundingSet is that of this process at its start, one bit for each capability.
// It is read in one go: to ask for each capability would be dozens of system
// calls, dear in a sandbox, before the first command can run.
var boundingSet = sync.OnceValues(func() (uint64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(b), "\nCapBnd:")
	if !found {
		return 0, errors.New("/proc/self/status has no CapBnd")
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseUint(strings.TrimSpace(line), 16, 64)
})

// setIDs changes the effective ids of this thread, not of the process: 0 comes
// back with the real one. The kernel drops the effective capabilities with the
// user id and gives them back with it.
func setIDs(uid, gid uint32, groups []uint32) error {
	const same = ^uintptr(0)
	setGID := func() error { return rawCall(unix.SYS_SETRESGID, same, uintptr(gid), same) }
	setUID := func() error { return rawCall(unix.SYS_SETRESUID, same, uintptr(uid), same) }
	setSupplementary := func() error { return setGroups(groups) }
	steps := []func() error{setSupplementary, setGID, setUID}
	if uid == 0 { // the capability for the others comes with it
		steps = []func() error{setUID, setGID, setSupplementary}
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return fmt.Errorf("take on the rights of uid %d: %w", uid, err)
		}
	}
	return nil
}
