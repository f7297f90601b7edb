package guest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MaxFrame is the largest payload of a frame: large enough that framing costs
// nothing, small enough that a reader may hold one for each stream.
const MaxFrame = 64 << 10

// MaxData is the largest frame of data of a [Duplex], whose reader holds no frame.
const MaxData = 1 << 20

// FrameType tells what a frame carries.
type FrameType uint8

// Frames from the host.
const (
	FrameExec     FrameType = 1 // ExecRequest; first frame on /exec
	FrameAttach   FrameType = 2 // AttachRequest; first frame on /attach
	FrameStdin    FrameType = 3 // bytes for standard input
	FrameStdinEOF FrameType = 4 // no more standard input
	FrameResize   FrameType = 5 // Resize
	FrameSignal   FrameType = 6 // SignalExecRequest (the id is the stream's)
	FrameDetach   FrameType = 7 // the client leaves on purpose, which is no disconnect
	FramePart     FrameType = 8 // of a first frame that is larger than MaxFrame: its bytes come before those of the first frame
)

// Frames from the guest.
const (
	FrameStarted FrameType = 16 // Started; first frame
	FrameStdout  FrameType = 17 // bytes
	FrameStderr  FrameType = 18 // bytes
	FrameGap     FrameType = 19 // Gap
	FrameExit    FrameType = 20 // ExecResult; last frame
	FrameError   FrameType = 21 // Error; last frame
	FrameWatch   FrameType = 24 // WatchEvents
)

// Frames of both ends on /port; FrameError is one, too.
const (
	FrameData FrameType = 32 // bytes
	FrameEnd  FrameType = 33 // no more bytes from this end
)

const frameHeader = 5

// WriteFrame sends one frame with one Write. len(p) must be at most MaxFrame.
func WriteFrame(w io.Writer, t FrameType, p []byte) error {
	if len(p) > MaxFrame {
		return fmt.Errorf("frame of %d bytes is larger than %d", len(p), MaxFrame)
	}
	b := make([]byte, frameHeader+len(p))
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(len(p)))
	copy(b[frameHeader:], p)
	_, err := w.Write(b)
	return err
}

// FrameReader reads frames. The payload that Next returns is valid until the
// next call.
type FrameReader struct {
	r   io.Reader
	buf []byte
}

// NewFrameReader reads frames from r, which should be buffered.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r} }

// Next reads one frame. io.EOF means that the stream ended between two frames.
func (f *FrameReader) Next() (FrameType, []byte, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(f.r, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes is larger than %d", n, MaxFrame)
	}
	if int(n) > cap(f.buf) {
		f.buf = make([]byte, n)
	}
	f.buf = f.buf[:n]
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return FrameType(h[0]), f.buf, nil
}
