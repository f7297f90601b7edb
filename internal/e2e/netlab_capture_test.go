package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// capture sees every packet of a network namespace, and keeps where those went
// that begin something: "tcp 192.0.2.7:80", "udp …", "proto 1 192.0.2.7".
type capture struct {
	socket *os.File
	done   chan struct{}

	mu    sync.Mutex
	went  []string
	total int
}

// startCapture begins, in the thread's namespace.
func startCapture() (*capture, error) {
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		return nil, fmt.Errorf("capture packets: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("capture packets: %w", err)
	}
	c := &capture{socket: os.NewFile(uintptr(fd), "packets"), done: make(chan struct{})}
	go c.run()
	return c, nil
}

func (c *capture) run() {
	defer close(c.done)
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 256) // the heads of packets
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), b, 0)
			return failed != unix.EAGAIN
		})
		if err != nil || failed != nil {
			return
		}
		// Each packet of the loopback interface goes out and comes in.
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			c.saw(b[:n])
		}
	}
}

func (c *capture) saw(packet []byte) {
	place := placeOf(packet)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	if place != "" && !slices.Contains(c.went, place) {
		c.went = append(c.went, place)
	}
}

// placeOf is where a packet goes; empty for one that answers: of a TCP connection
// that is there, or from a name server.
func placeOf(p []byte) string {
	var to netip.Addr
	var protocol byte
	var rest []byte
	switch {
	case len(p) >= 20 && p[0]>>4 == 4 && len(p) >= int(p[0]&15)*4:
		to, protocol, rest = netip.AddrFrom4([4]byte(p[16:20])), p[9], p[int(p[0]&15)*4:]
	case len(p) >= 40 && p[0]>>4 == 6:
		to, protocol, rest = netip.AddrFrom16([16]byte(p[24:40])), p[6], p[40:]
	default:
		return fmt.Sprintf("unknown %x", p[:min(len(p), 4)])
	}
	const headTCP, headUDP, flagSYN, flagACK = 20, 8, 2, 16
	switch {
	case protocol == unix.IPPROTO_TCP && len(rest) >= headTCP:
		if rest[13]&(flagSYN|flagACK) != flagSYN {
			return ""
		}
		return "tcp " + netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:])).String()
	case protocol == unix.IPPROTO_UDP && len(rest) >= headUDP:
		if binary.BigEndian.Uint16(rest) == 53 {
			return ""
		}
		return "udp " + netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:])).String()
	}
	return fmt.Sprintf("proto %d %s", protocol, to)
}

// seen are the places that packets went to so far.
func (c *capture) seen() []string {
	// The kernel delivers before the sender goes on; this goroutine may be late.
	for before := -1; ; {
		c.mu.Lock()
		n, went := c.total, slices.Clone(c.went)
		c.mu.Unlock()
		if n == before {
			return went
		}
		before = n
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *capture) stop() {
	_ = c.socket.Close()
	<-c.done
}
