package agent

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

const (
	switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + guest.Upgrade + "\r\n\r\n"
	// firstFrame is how long the host may take to send what it wants.
	firstFrame = 30 * time.Second
	// batch is how much output is collected before it is written.
	batch = 128 << 10
)

// takeOver makes a raw stream of a request's connection, which is then the caller's
// to close. Without ok the request was answered.
func takeOver(w http.ResponseWriter) (conn net.Conn, rw *bufio.ReadWriter, ok bool) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		guest.WriteError(w, err)
		return nil, nil, false
	}
	if _, err := io.WriteString(conn, switching); err != nil {
		conn.Close()
		return nil, nil, false
	}
	return conn, rw, true
}

// serveFrames answers /exec and /attach: it takes over the connection, reads
// the first frame and follows the exec that open makes of it.
func (s *session) serveFrames(w http.ResponseWriter, r *http.Request, want guest.FrameType, open func([]byte) (*reader, error)) {
	if err := mustUpgrade(r); err != nil {
		guest.WriteError(w, err)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	defer conn.Close()
	frames := guest.NewFrameReader(rw.Reader)
	t, p, err := firstOf(frames)
	if err != nil {
		return
	}
	var rd *reader
	if t == want {
		rd, err = open(p)
	} else {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "the first frame is of type %d, not %d", t, want)
	}
	if err != nil {
		m, _ := guest.EncodeError(err)
		_, _ = conn.Write(appendMessage([]byte(switching), guest.FrameError, m))
		return
	}
	s.follow(conn, frames, rd)
}

// firstOf reads the first frame and the parts of it that come before.
func firstOf(frames *guest.FrameReader) (guest.FrameType, []byte, error) {
	var parts []byte
	for {
		t, p, err := frames.Next()
		if err != nil || t != guest.FramePart {
			return t, append(parts, p...), err
		}
		if parts = append(parts, p...); len(parts) > guest.MaxRequest {
			return 0, nil, guest.Errorf(errdefs.ErrInvalidArgument, "the first frame is larger than %d bytes", guest.MaxRequest)
		}
	}
}

func (s *session) serveExec(w http.ResponseWriter, r *http.Request) {
	s.serveFrames(w, r, guest.FrameExec, func(p []byte) (*reader, error) {
		q := new(guestv1.ExecRequest)
		if err := proto.Unmarshal(p, q); err != nil {
			return nil, guest.Errorf(errdefs.ErrInvalidArgument, "decode the command: %v", err)
		}
		_, rd, err := s.agent.execs.start(q, true)
		return rd, err
	})
}

func (s *session) serveAttach(w http.ResponseWriter, r *http.Request) {
	s.serveFrames(w, r, guest.FrameAttach, func(p []byte) (*reader, error) {
		q := new(guestv1.AttachRequest)
		if err := proto.Unmarshal(p, q); err != nil {
			return nil, guest.Errorf(errdefs.ErrInvalidArgument, "decode the request: %v", err)
		}
		e, err := s.agent.execs.get(q.GetExecId())
		if err != nil {
			return nil, err
		}
		return e.attach([2]int64{q.GetStdoutOffset(), q.GetStderrOffset()}, q.GetLossless()), nil
	})
}

// buffers for batches of frames: one frame may come on top of a batch.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// follow sends output to the client and takes its input until either ends.
func (s *session) follow(conn net.Conn, frames *guest.FrameReader, rd *reader) {
	go func() {
		rd.leave(rd.e.input(frames))
		_ = conn.SetWriteDeadline(time.Now()) // a client that is gone reads nothing
	}()
	buf := buffers.Get().(*[]byte)
	b, more := append((*buf)[:0], switching...), true
	for more {
		if b, more = rd.fill(b, batch); len(b) > 0 {
			if _, err := conn.Write(b); err != nil {
				break
			}
		}
		b = b[:0]
	}
	*buf = b
	if cap(b) <= 256<<10 {
		buffers.Put(buf)
	}
	rd.detach(s.mux.IsClosed())
	_ = conn.Close()
	_ = conn.SetReadDeadline(time.Now())
}

// input handles the client's frames. It reports whether the client left on
// purpose.
func (e *exec) input(frames *guest.FrameReader) bool {
	for {
		t, p, err := frames.Next()
		if err != nil {
			return false
		}
		switch t {
		case guest.FrameDetach:
			return true
		case guest.FrameStdin, guest.FrameStdinEOF:
			e.stdin(p, t == guest.FrameStdinEOF)
		case guest.FrameResize:
			m := new(guestv1.Resize)
			if proc := e.process(); proto.Unmarshal(p, m) == nil && proc != nil && e.spec.TTY {
				_ = proc.Resize(uint16(m.GetCols()), uint16(m.GetRows()))
			}
		case guest.FrameSignal:
			m := new(guestv1.SignalExecRequest)
			if proto.Unmarshal(p, m) == nil {
				_ = e.signal(int(m.GetSignal()), m.GetTree())
			}
		}
	}
}

// stdin passes input on. It waits for the command to start, and drops what a
// command that ended, or has no input, does not take.
func (e *exec) stdin(p []byte, eof bool) {
	proc := e.process()
	if proc == nil || proc.Stdin() == nil {
		return
	}
	if len(p) > 0 {
		_, _ = proc.Stdin().Write(p)
	}
	if eof {
		_ = proc.Stdin().Close()
	}
}

// process waits until the command runs; nil if it never does.
func (e *exec) process() Process {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.begun {
		e.changed.Wait()
	}
	return e.proc
}
