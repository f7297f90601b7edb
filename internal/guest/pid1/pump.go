//go:build linux

package pid1

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pump moves one output stream of a command to its writer.
type pump struct {
	f       *os.File // in non-blocking mode
	ended   func()   // called at the end of the output
	w       io.Writer
	flow    flow
	ending  atomic.Bool // the command ended: what is in the pipe is the rest
	rest    int         // bytes that were moved since then
	once    sync.Once
	drained chan struct{}
}

func newPump(f *os.File, w io.Writer, ended func()) *pump {
	return &pump{f: f, w: w, ended: ended, drained: make(chan struct{})}
}

// pipeMax is the most that a pipe can hold (fs.pipe-max-size of Linux). Whatever
// comes beyond it was written after the command ended.
const pipeMax = 1 << 20

// Buffers are taken only while there is something to read, so that idle
// commands hold none.
var (
	pumpBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
	floodBuffer = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}
)

// flow tells whether a stream is a flood: much output at once. Most programs
// write it in small pieces, and to be woken for each costs far more than to move
// it. A flood is read in large pieces after short naps, from a pipe that has
// room for what comes meanwhile. The first bytes after a pause never wait.
type flow struct {
	moved int       // bytes since the last pause
	last  time.Time // when some were moved
	wide  bool      // the pipe was made larger
}

const (
	floodStart = 256 << 10
	floodPause = 10 * time.Millisecond // ends a flood
	floodNap   = 500 * time.Microsecond
)

func (f *flow) flood() bool { return f.moved >= floodStart }

func (f *flow) add(fd, n int) {
	now := time.Now()
	if now.Sub(f.last) > floodPause {
		f.moved = 0
	}
	f.last = now
	f.moved += n
	if f.flood() && !f.wide {
		f.wide = true
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeMax) // a terminal has none; a pipe works as it is
	}
}

// run moves bytes until the last writer has gone.
func (p *pump) run() {
	defer p.f.Close()
	defer runtime.Gosched() // the result first
	defer p.done()
	raw, err := p.f.SyscallConn()
	if err != nil {
		return
	}
	for {
		closed := false
		err := raw.Read(func(fd uintptr) bool {
			closed = p.move(int(fd))
			return closed
		})
		if err != nil && p.ending.Load() { // the wake-up of drain
			err = raw.Control(func(fd uintptr) { closed = p.move(int(fd)) })
			p.done()
			_ = p.f.SetReadDeadline(time.Time{})
		}
		if closed {
			p.ended()
		}
		if closed || err != nil {
			return
		}
	}
}

// move reads until the pipe is empty; closed is true when it will stay so.
func (p *pump) move(fd int) (closed bool) {
	buffers := &pumpBuffers
	if p.flow.flood() {
		buffers = &floodBuffer
	}
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	napped := false
	for {
		ending := p.ending.Load() // what was read before is none of the rest
		n, err := unix.Read(fd, *b)
		switch {
		case n > 0:
			napped = false
			p.flow.add(fd, n)
			_, _ = p.w.Write((*b)[:n])
			if ending {
				if p.rest += n; p.rest > pipeMax {
					p.done()
				}
			}
		case err == unix.EINTR:
		case err == unix.EAGAIN && p.flow.flood() && !napped && !p.ending.Load():
			napped = true
			time.Sleep(floodNap)
		case err == unix.EAGAIN:
			return false
		default: // end-of-file; EIO from a terminal
			return true
		}
	}
}

func (p *pump) done() { p.once.Do(func() { close(p.drained) }) }

// drain returns when what was in the pipe has been moved.
func (p *pump) drain() {
	p.ending.Store(true)
	_ = p.f.SetReadDeadline(time.Unix(1, 0))
	<-p.drained
}
