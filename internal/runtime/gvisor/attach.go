package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"

	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// attachTimeout bounds handing a new stream to the agent: starting a helper in
// a sandbox whose processors are all busy.
const attachTimeout = 20 * time.Second

// attach returns a stream to the agent: the donated one the first time, then
// new ones.
func (b *box) attach(ctx context.Context) (net.Conn, error) {
	if err := errors.Join(ctx.Err(), b.must(sandbox.Live)); err != nil {
		return nil, err
	}
	conn := b.conn
	b.conn = nil
	if conn == nil {
		ctx, cancel := context.WithTimeout(ctx, attachTimeout)
		defer cancel()
		var err error
		if conn, err = b.handOver(ctx); err != nil {
			return nil, err
		}
	}
	return &stream{Conn: conn, b: b}, nil
}

// stream is what Attach returns.
type stream struct {
	net.Conn
	b *box
}

// Established is called by the owner when the agent took the session on this
// stream. The stream before ends then: the agent let go of it, but can't close
// the donated one, which a checkpoint needs.
func (s *stream) Established() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.b.inUse != nil {
		s.b.inUse.Close() // its owner may have done so
	}
	s.b.inUse = s.Conn
}

// handOver makes a stream and lets a helper hand its other end to the agent.
// The helper is executed in the sandbox from a file of the host, so that user
// code can't replace it, and proves nothing itself: host and agent do.
func (b *box) handOver(ctx context.Context) (net.Conn, error) {
	conn, theirs, err := streamPair()
	if err != nil {
		return nil, err
	}
	// One capability that user code lacks keeps it from tracing the helper, also
	// where it is guest root. This one gives no right in gVisor.
	h := helper{verb: "attach", caps: []linux.Capability{linux.CAP_WAKE_ALARM}, files: []*os.File{theirs}}
	err = h.start(ctx, b)
	theirs.Close() // else there is no end-of-file when the helper fails
	if err == nil {
		err = b.prove(ctx, conn)
		// A helper that still runs would make a checkpoint impossible. What one says
		// that failed is the cause of a proof that did not come; it proves nothing.
		ended := h.end(ctx, b)
		if err != nil || !errors.Is(ended, errHelperFailed) {
			err = errors.Join(err, ended)
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("hand a stream to the agent: %w", err)
	}
	return conn, nil
}

// takeTime is how long an agent may take to begin, on a busy machine.
const takeTime = time.Minute

// awaitTaken returns when the other end has read all that was written to conn.
func awaitTaken(ctx context.Context, conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return errors.New("the stream is no socket")
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, takeTime)
	defer cancel()
	for {
		left := 0
		var asked error
		err := rc.Control(func(fd uintptr) { left, asked = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if err = errors.Join(err, asked); err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *box) prove(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// The agent speaks first. The time that the helper takes to start, in a
	// sandbox whose processors are busy, is not the proof's.
	if err := awaitData(conn); err != nil {
		return fmt.Errorf("wait for the agent: %w", err)
	}
	return guest.ProveHost(conn, b.rec.Key)
}

// awaitData returns when there is something to read, or the end.
func awaitData(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(readable)
}

// streamBuffer is how much each end may send ahead of its reader. The kernel's
// default, 208 KiB, wakes a sandbox for each piece of a large body: measured at
// three quarters of the speed.
const streamBuffer = 2 << 20

// streamPair returns a new stream: our end, and the file of the other one.
func streamPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a stream: %w", err)
	}
	for _, fd := range fds {
		// Root may go beyond the system's limit; others get as much as that allows.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, streamBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, streamBuffer)
		}
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent stream"), os.NewFile(uintptr(fds[1]), "agent stream")
	defer ours.Close() // FileConn makes a copy
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make a stream: %w", err)
	}
	return conn, theirs, nil
}
