package peercred

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// UID is the user that connected the other end of c.
func UID(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask for the peer's user: %w", err)
	}
	var cred *unix.Ucred
	var get error
	err = raw.Control(func(fd uintptr) { cred, get = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, get); err != nil {
		return 0, fmt.Errorf("ask for the peer's user: %w", err)
	}
	return cred.Uid, nil
}
