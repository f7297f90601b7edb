package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// Duplex is a connection that can be closed in one direction, over a stream of
// the multiplexer in frames. The end of the stream itself tells that the other
// end is gone altogether, which a half-closed stream could not: a reader learns
// of it also after FrameEnd, see [Duplex.WaitGone].
//
// One goroutine may read while another writes.
type Duplex struct {
	net.Conn
	in    io.Reader
	head  [frameHeader]byte
	have  int    // bytes of head
	data  int    // bytes of a data frame that are still to come
	note  []byte // what has come of the body of another frame
	inErr error  // that ends reading

	inEnded atomic.Bool // the other end has closed its direction

	mu    sync.Mutex // one frame at a time
	buf   []byte
	ended bool
}

// ErrReset is wrapped by errors that tell that the other end is gone before it
// said that its bytes end. It matches syscall.ECONNRESET.
var ErrReset = fmt.Errorf("the other end is gone: %w", syscall.ECONNRESET)

// NewDuplex makes a connection of a stream from which r reads.
func NewDuplex(stream net.Conn, r io.Reader) *Duplex {
	return &Duplex{Conn: stream, in: r}
}

// Read returns io.EOF when the other end has closed its direction. After a
// deadline it can be called again.
func (d *Duplex) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for d.inErr == nil {
		if d.data > 0 {
			n, err := d.in.Read(p[:min(len(p), d.data)])
			d.data -= n
			if n > 0 {
				return n, nil
			}
			return 0, brokenOff(err)
		}
		if err := d.next(); err != nil {
			return 0, brokenOff(err)
		}
	}
	return 0, d.inErr
}

// next reads the head of a frame and, unless it is data, the body. It can be
// called again after an error.
func (d *Duplex) next() error {
	for d.have < frameHeader {
		n, err := d.in.Read(d.head[d.have:])
		d.have += n
		if err != nil && d.have < frameHeader {
			return err
		}
	}
	t, size := FrameType(d.head[0]), int(binary.BigEndian.Uint32(d.head[1:]))
	if size > MaxFrame && (t != FrameData || size > MaxData) {
		d.inErr = fmt.Errorf("frame of %d bytes is larger than %d", size, MaxFrame)
		return d.inErr
	}
	if t == FrameData {
		d.data, d.have = size, 0
		return nil
	}
	for len(d.note) < size {
		b := make([]byte, size-len(d.note))
		n, err := d.in.Read(b)
		d.note = append(d.note, b[:n]...)
		if err != nil && len(d.note) < size {
			return err
		}
	}
	switch t {
	case FrameEnd:
		d.inErr = io.EOF
		d.inEnded.Store(true)
	case FrameError:
		d.inErr = told(d.note)
	} // others are of a later version
	d.note, d.have = nil, 0
	return nil
}

// brokenOff says what the end of the stream below means.
func brokenOff(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrReset
	}
	return err
}

func told(b []byte) error {
	m := new(guestv1.Error)
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("decode an error: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrReset, DecodeError(m))
}

// WaitGone returns when the other end is gone, after Read has returned an error.
func (d *Duplex) WaitGone() { _, _ = io.Copy(io.Discard, d.in) }

// Write sends bytes. It blocks while the other end does not read.
func (d *Duplex) Write(p []byte) (n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(p) > 0 {
		part := p[:min(len(p), MaxData)]
		if err := d.frame(FrameData, part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// CloseWrite tells the other end that no more bytes come. Reading goes on.
func (d *Duplex) CloseWrite() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil
	}
	err := d.frame(FrameEnd, nil)
	d.ended = true
	return err
}

// Ended reports whether both ends have closed their directions.
func (d *Duplex) Ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended && d.inEnded.Load()
}

// Fail tells the other end why no more bytes come.
func (d *Duplex) Fail(why error) error {
	m, _ := EncodeError(why)
	m.Message, m.Path = m.Message[:min(len(m.Message), maxMessage)], nil
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode an error: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil
	}
	err = d.frame(FrameError, b)
	d.ended = true
	return err
}

// frame sends one frame, if it is not large with one write; d.mu is held.
func (d *Duplex) frame(t FrameType, p []byte) error {
	if d.ended {
		return fmt.Errorf("write to a closed connection: %w", syscall.EPIPE)
	}
	d.buf = append(d.buf[:0], byte(t))
	d.buf = binary.BigEndian.AppendUint32(d.buf, uint32(len(p)))
	if len(p) <= MaxFrame { // else the copy would be dearer than a write
		d.buf = append(d.buf, p...)
		p = nil
	}
	_, err := d.Conn.Write(d.buf)
	if len(p) > 0 && err == nil {
		_, err = d.Conn.Write(p)
	}
	return err
}
