package control

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peer is the user at the other end.
func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var get error
	err = raw.Control(func(fd uintptr) { cred, get = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, get); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
