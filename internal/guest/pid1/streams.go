//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

const (
	// DonatedFD is the socket that the host gave at the sandbox's start. It is
	// never closed: a restore puts a new one behind the same number.
	DonatedFD = 3
	// ControlDir holds the socket on which the host's helper hands over further
	// streams; only guest root may enter.
	ControlDir  = "/run/.agentbox"
	controlPath = ControlDir + "/ctl"
	// maxHandovers is how many handovers may be under way, handoverTimeout how
	// long each may take.
	maxHandovers    = 4
	handoverTimeout = 3 * time.Second
)

// streams gives the host's streams to the agent.
type streams struct {
	agent   *agent.Agent
	donated *os.File
	hostDev uint64 // device of sockets that come from the host

	mu  sync.Mutex
	key guest.Key
}

// takeStreams secures this process and takes over the donated socket.
func takeStreams() (*streams, error) {
	unix.CloseOnExec(DonatedFD) // before any child could inherit it
	// User code that is guest root must not reach into this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("protect the first process: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(DonatedFD, &st); err != nil {
		return nil, fmt.Errorf("examine the host's socket: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("descriptor 3 is not a socket")
	}
	if err := unix.SetNonblock(DonatedFD, true); err != nil {
		return nil, fmt.Errorf("set up the host's socket: %w", err)
	}
	return &streams{donated: os.NewFile(DonatedFD, "host"), hostDev: st.Dev}, nil
}

// serveDonated runs sessions on the donated socket for ever. Each begins with a
// key: the host was started, or the sandbox restored.
func (s *streams) serveDonated() error {
	host, err := newConn(s.donated)
	if err != nil {
		return fmt.Errorf("use the host's socket: %w", err)
	}
	for {
		_ = s.donated.SetDeadline(time.Time{})
		if err := s.awaitHost(host.socket.raw); err != nil {
			return fmt.Errorf("wait for the host: %w", err)
		}
		_ = s.donated.SetDeadline(time.Time{})
		key, err := guest.NextKey(s.donated)
		if err != nil {
			continue // end-of-file: the next data comes after a restore
		}
		s.mu.Lock()
		first := s.key == (guest.Key{})
		s.key = key
		s.mu.Unlock()
		if first { // before it no stream could be proved
			go func() { warn(s.listen()) }()
		}
		s.agent.Reset()
		c := &donatedConn{conn: host}
		_ = s.agent.Serve(c, false) // however it ended
		c.retire()
		_ = s.donated.SetWriteDeadline(time.Now().Add(lookAgain))
		_, _ = io.WriteString(s.donated, guest.SessionEnd) // nobody may be there
	}
}

// lookAgain is how long a wait for the host trusts that a new socket behind the
// donated number announces itself. A restore that puts one there with data in it
// may lose the announcement.
const lookAgain = time.Second

// awaitHost waits for data on the donated socket.
func (s *streams) awaitHost(raw syscall.RawConn) error {
	for {
		_ = s.donated.SetReadDeadline(time.Now().Add(lookAgain))
		err := awaitData(raw.Read)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// awaitData returns when there is data. End-of-file is not data: it makes the
// socket readable for ever, until a restore puts a living one behind it.
func awaitData(read func(func(uintptr) bool) error) error {
	return read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err == nil && n > 0
	})
}

// listen takes handovers for ever.
func (s *streams) listen() error {
	if err := os.MkdirAll(path.Dir(ControlDir), 0o755); err != nil {
		return fmt.Errorf("make %s: %w", ControlDir, err)
	}
	if err := os.Mkdir(ControlDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make %s: %w", ControlDir, err)
	}
	// An image may have put something there.
	if err := errors.Join(os.Chown(ControlDir, 0, 0), os.Chmod(ControlDir, 0o700)); err != nil {
		return fmt.Errorf("secure %s: %w", ControlDir, err)
	}
	_ = os.Remove(controlPath)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: controlPath, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen for the host's helper: %w", err)
	}
	slots := make(chan struct{}, maxHandovers)
	for {
		slots <- struct{}{}
		c, err := l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("listen for the host's helper: %w", err)
		}
		go func() {
			defer func() { <-slots }()
			s.handover(c)
		}()
	}
}

// handover takes one stream, checks it and tells the helper how that went.
func (s *streams) handover(c *net.UnixConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(handoverTimeout))
	stream, err := s.receive(c)
	if err == nil {
		s.mu.Lock()
		key := s.key
		s.mu.Unlock()
		if err = guest.ProveGuest(stream, key); err != nil {
			stream.Close()
		}
	}
	if err != nil {
		_, _ = io.WriteString(c, err.Error())
		return
	}
	_, _ = io.WriteString(c, handoverOK)
	go func() { _ = s.agent.Serve(stream, true) }() // however it ended
}

const handoverOK = "ok"

var errForeign = errors.New("refused: not the host's stream")

// receive takes a descriptor from guest root that is a socket of the host.
func (s *streams) receive(c *net.UnixConn) (conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return conn{}, err
	}
	var cred *unix.Ucred
	ctl := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(ctl, err); err != nil {
		return conn{}, err
	}
	if cred.Uid != 0 {
		return conn{}, errForeign
	}
	fd, err := receiveFD(c)
	if err != nil {
		return conn{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != s.hostDev || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		unix.Close(fd)
		return conn{}, errForeign
	}
	// Non-blocking, so that closing it never waits for a reader.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return conn{}, err
	}
	return newConn(os.NewFile(uintptr(fd), "adopted"))
}

// receiveFD takes exactly one descriptor; any others are closed.
func receiveFD(c *net.UnixConn) (int, error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4*8))
	_, n, _, _, err := c.ReadMsgUnix(b[:], oob) // close-on-exec is set by it
	if err != nil {
		return -1, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return -1, err
	}
	var fds []int
	for _, m := range msgs {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	if len(fds) == 1 {
		return fds[0], nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return -1, errForeign
}
