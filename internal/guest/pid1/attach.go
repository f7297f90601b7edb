//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Attach is the host's helper, executed in the sandbox from a file of the host:
// it hands descriptor 3 to the first process and returns its verdict. It holds
// no secret.
func Attach() error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("hand over a stream: %w", err)
	}
	defer unix.Close(s)
	limit := unix.NsecToTimeval(int64(handoverTimeout + time.Second))
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fmt.Errorf("hand over a stream: %w", err)
	}
	if err := reach(s); err != nil {
		return fmt.Errorf("reach the first process: %w", err)
	}
	if err := unix.Sendmsg(s, []byte{0}, unix.UnixRights(DonatedFD), nil, 0); err != nil {
		return fmt.Errorf("hand over a stream: %w", err)
	}
	// The stream is the first process's now; a copy here would keep it open.
	if err := unix.Close(DonatedFD); err != nil {
		return fmt.Errorf("hand over a stream: %w", err)
	}
	var b [512]byte
	n, err := unix.Read(s, b[:])
	if err != nil {
		return fmt.Errorf("wait for the first process: %w", err)
	}
	if string(b[:n]) != handoverOK {
		return errors.New(string(b[:n]))
	}
	return nil
}

// reachTimeout is how long the first process may take until it listens. A host that
// comes back gives all of a take-over twice as much, and so hears what failed.
const reachTimeout = 5 * time.Second

// reach connects s to the first process. That may still be starting: a host is
// killed and comes back faster than a sandbox starts on a busy machine. It refuses
// connections also when it has more of them than it can take.
func reach(s int) error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Connect(s, &unix.SockaddrUnix{Name: controlPath})
		early := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
		if !early || time.Since(began) > reachTimeout {
			return err
		}
	}
}
