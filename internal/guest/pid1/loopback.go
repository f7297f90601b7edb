//go:build linux

package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest/agent"
)

// loopback is the interface of that name, the sandbox's only one. Ports below
// 1,024 are for everybody there.
type loopback struct{}

// Listen waits for connections. Package net sets SO_REUSEADDR, and not
// SO_REUSEPORT, with which other programs could share the port.
func (loopback) Listen(at netip.AddrPort) (agent.Listener, error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	return listener{l}, nil
}

type listener struct{ *net.TCPListener }

func (l listener) Accept() (agent.PortConn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return bounded(c)
}

func (loopback) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
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
func (loopback) UseResolver(at netip.Addr) error {
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
