//go:build linux

package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/agent"
)

// loopback is the interface of that name, the sandbox's only one. Ports below
// 1,024 are for everybody there.
type loopback struct {
	aside atomic.Uint64 // inode of the socket of ListenAside
}

// Listen waits for connections. Package net sets SO_REUSEADDR, and not
// SO_REUSEPORT, with which other programs could share the port.
func (*loopback) Listen(at netip.AddrPort) (agent.Listener, error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

// ListenAside waits on the interface alone. So gVisor keeps its socket apart from those
// of programs, which are bound to none, and lets both have the address if both set
// SO_REUSEADDR. Linux would not: there a program finds the port in use.
func (l *loopback) ListenAside(at netip.AddrPort) (agent.Listener, error) {
	var st unix.Stat_t
	var err error
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		control := raw.Control(func(fd uintptr) {
			if err = unix.BindToDevice(int(fd), "lo"); err == nil {
				err = unix.Fstat(int(fd), &st)
			}
		})
		return errors.Join(control, err)
	}}
	open, err := c.Listen(context.Background(), "tcp4", at.String())
	if err != nil {
		return nil, err
	}
	l.aside.Store(st.Ino)
	return listener{open.(*net.TCPListener)}, nil
}

// Taken looks into the kernel's tables.
func (l *loopback) Taken(at netip.AddrPort) (bool, error) {
	for _, name := range socketTables {
		list, _, err := listenersIn(name)
		if err != nil {
			return false, err
		}
		for _, s := range list {
			if s.addr.Port() == at.Port() && (s.addr.Addr() == at.Addr() || s.addr.Addr().IsUnspecified()) && s.inode != l.aside.Load() {
				return true, nil
			}
		}
	}
	return false, nil
}

type listener struct{ *net.TCPListener }

func (l listener) Accept() (agent.PortConn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return bounded(c)
}

func (*loopback) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	return net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
}

const (
	resolvConf = "/etc/resolv.conf"
	// resolverMark begins the file when it is ours.
	resolverMark = "# made by agentbox\n"
	// maxResolvConf is more than a file of ours has.
	maxResolvConf = 4 << 10
)

// UseResolver writes /etc/resolv.conf, unless a user wrote it. An image without
// /etc has nothing that would read it.
func (*loopback) UseResolver(at netip.Addr) error {
	var want []byte
	flags := unix.O_RDWR
	if at.IsValid() {
		want = fmt.Appendf(nil, "%snameserver %s\n", resolverMark, at)
		flags |= unix.O_CREAT
	}
	fd, err := unix.Open(resolvConf, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", resolvConf, err)
	}
	f := os.NewFile(uintptr(fd), resolvConf)
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if !i.Mode().IsRegular() || i.Size() > maxResolvConf {
		return nil
	}
	have, err := readBounded(f, maxResolvConf)
	if err != nil {
		return err
	}
	if ours := len(have) == 0 || bytes.HasPrefix(have, []byte(resolverMark)); !ours || bytes.Equal(have, want) {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(want, 0)
	return err
}
