//go:build linux

package pid1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// network is the sandbox's TCP.
type network struct{}

// Dial connects to a port on the loopback interface, of IPv4 or else of IPv6.
func (network) Dial(ctx context.Context, port uint16) (agent.PortConn, error) {
	var d net.Dialer
	var first error
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(ip, port).String())
		if err == nil {
			return bounded(c.(*net.TCPConn))
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	return nil, first
}

// portBuffer is how many bytes of a connection wait in the agent's own socket in
// each direction. gVisor would take a MiB, and more for a busy one; the server's
// socket has one of its own.
const portBuffer = 64 << 10

func bounded(c *net.TCPConn) (agent.PortConn, error) {
	if err := errors.Join(c.SetReadBuffer(portBuffer), c.SetWriteBuffer(portBuffer)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s, err := newDirectSocket(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return directTCP{c, s}, nil
}

// boundSockets sets the least, first and largest size of the buffers of TCP
// sockets. The first is about Linux's (tcp(7)); they grow while they are in use.
// Packets take no time within a sandbox, so there is no use for more. gVisor's
// own, a MiB and 4 MiB in each direction, would let 200 connections whose server
// reads nothing, or writes to who reads nothing, take all memory of most sandboxes.
func boundSockets() error {
	return errors.Join(
		os.WriteFile("/proc/sys/net/ipv4/tcp_rmem", []byte("4096 131072 524288"), 0),
		os.WriteFile("/proc/sys/net/ipv4/tcp_wmem", []byte("4096 65536 262144"), 0),
	)
}

// Bounds of a look at /proc, which is as large as the sandbox's user likes.
const (
	maxSockets = 20_000  // sockets of which one table is read
	maxLinks   = 200_000 // open files of processes that are looked at
)

// Listening reads the kernel's tables and looks for the sockets among the open
// files of all processes. The agent's own are left out.
func (network) Listening(ctx context.Context, limit int) (list []*guestv1.ListeningPort, more bool, err error) {
	inodes := map[uint64]*guestv1.ListeningPort{}
	own := map[uint64]bool{}
	sockets, _ := socketsOf("/proc/self", maxLinks)
	for _, inode := range sockets {
		own[inode] = true
	}
	for _, name := range socketTables {
		sockets, cut, err := listenersIn(name)
		if err != nil {
			return nil, false, err
		}
		more = more || cut
		for _, s := range sockets {
			if own[s.inode] {
				continue
			}
			p := &guestv1.ListeningPort{Address: s.addr.Addr().String(), Port: uint32(s.addr.Port()), Uid: s.uid}
			list = append(list, p)
			inodes[s.inode] = p
		}
	}
	slices.SortFunc(list, func(a, b *guestv1.ListeningPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
	if len(list) > limit {
		list, more = list[:limit], true
	}
	return list, more, findHolders(ctx, inodes)
}

// socket is one row of the kernel's table.
type socket struct {
	addr  netip.AddrPort
	uid   uint32
	inode uint64
}

// socketTables are the kernel's tables of TCP sockets.
var socketTables = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// listenersIn is listeners for a table by its name. A kernel without IPv6 has no table
// of it.
func listenersIn(name string) (list []socket, cut bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	list, cut = listeners(f)
	return list, cut, nil
}

// listeners reads the sockets that wait for connections out of a table such as
// /proc/net/tcp; cut tells that the table is longer than is read.
func listeners(r io.Reader) (list []socket, cut bool) {
	const longest = 512 // a row has 150 bytes
	sc := bufio.NewScanner(io.LimitReader(r, maxSockets*longest))
	sc.Buffer(make([]byte, longest), longest)
	for n := 0; sc.Scan(); n++ {
		if n > maxSockets {
			return list, true
		}
		if s, ok := parseSocket(sc.Text()); ok {
			list = append(list, s)
		}
	}
	return list, sc.Err() != nil
}

// parseSocket reads "sl: local remote state tx:rx tr:when retrnsmt uid timeout
// inode …". Rows of other states are not ok.
func parseSocket(row string) (s socket, ok bool) {
	const listen = "0A" // TCP_LISTEN
	f := strings.Fields(row)
	if len(f) < 10 || f[3] != listen {
		return s, false
	}
	host, port, _ := strings.Cut(f[1], ":")
	ip, err1 := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	uid, err3 := strconv.ParseUint(f[7], 10, 32)
	inode, err4 := strconv.ParseUint(f[9], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || len(ip)%4 != 0 {
		return s, false
	}
	// The kernel prints words of 32 bits, each as a number.
	for w := ip; len(w) > 0; w = w[4:] {
		slices.Reverse(w[:4])
	}
	addr, ok := netip.AddrFromSlice(ip)
	return socket{netip.AddrPortFrom(addr.Unmap(), uint16(p)), uint32(uid), inode}, ok
}

// findHolders fills in the processes that hold the sockets. One that can't be
// looked at leaves its sockets without.
func findHolders(ctx context.Context, inodes map[uint64]*guestv1.ListeningPort) error {
	if len(inodes) == 0 {
		return nil
	}
	all, err := tasks()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	left := maxLinks
	for _, t := range all {
		if len(inodes) == 0 || left <= 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := "/proc/" + strconv.Itoa(t.pid)
		open, n := socketsOf(dir, left)
		left -= n
		for _, inode := range open {
			if p := inodes[inode]; p != nil {
				p.Pid, p.Process = int32(t.pid), processName(dir)
				delete(inodes, inode)
			}
		}
	}
	return nil
}

// socketsOf lists the sockets among a process's open files, of which it looks at
// a limited number, and how many those were. Of one that is gone there are none.
func socketsOf(dir string, limit int) (inodes []uint64, looked int) {
	d, err := os.Open(dir + "/fd")
	if err != nil {
		return nil, 0
	}
	names, _ := d.Readdirnames(limit)
	d.Close()
	for _, n := range names {
		link, err := os.Readlink(dir + "/fd/" + n)
		if err != nil {
			continue
		}
		if inode, ok := socketInode(link); ok {
			inodes = append(inodes, inode)
		}
	}
	return inodes, len(names)
}

// socketInode reads the target of an open file's link, "socket:[4711]".
func socketInode(link string) (inode uint64, ok bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return inode, err == nil
}

// processName is what the kernel shows of a process's name.
func processName(dir string) []byte {
	const longest = 15 // TASK_COMM_LEN - 1
	b, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return nil
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	return b[:min(len(b), longest)]
}
