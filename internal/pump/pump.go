// Package pump moves streams of bytes in pieces whose size follows what comes: small
// ones for the many connections that carry little, large ones while much comes, for
// which the cost of a system call does not matter.
package pump

import (
	"io"
	"sync"
)

const (
	// Small is the piece with which every stream begins. A stream may hold it for
	// ever, so it is modest.
	Small = 32 << 10
	// Large is the piece of a stream that fills small ones: in a sandbox, where each
	// system call costs tens of microseconds, the rate of a download grows until
	// about this size.
	Large = 256 << 10
)

var (
	smalls = sync.Pool{New: func() any { return new([Small]byte) }}
	larges = sync.Pool{New: func() any { return new([Large]byte) }}
)

// Pool bounds how many streams have a large piece at the same time, whatever their
// other ends do: further ones stay with small ones.
type Pool struct{ places chan struct{} }

// New makes a pool of so many large pieces, of which there may be none.
func New(large int) *Pool { return &Pool{places: make(chan struct{}, large)} }

// Piece is what a stream is read with. It is not for several goroutines.
type Piece struct {
	pool  *Pool
	small *[Small]byte
	large *[Large]byte
	grow  bool // the small one was filled
	last  int
}

// Piece gives one, which must be released.
func (p *Pool) Piece() *Piece { return &Piece{pool: p, small: smalls.Get().(*[Small]byte)} }

// Release gives the memory back; what Read returned must not be used any more.
func (p *Piece) Release() {
	p.shrink()
	smalls.Put(p.small)
	p.small = nil
}

// Read reads once, as much as there is room for. What it returns holds until the
// next call.
func (p *Piece) Read(r io.Reader) ([]byte, error) {
	switch {
	case p.large != nil && p.last <= Small:
		p.shrink()
	case p.large == nil && p.grow:
		select {
		case p.pool.places <- struct{}{}:
			p.large = larges.Get().(*[Large]byte)
		default:
		}
	}
	buf := p.small[:]
	if p.large != nil {
		buf = p.large[:]
	}
	n, err := r.Read(buf)
	p.last, p.grow = n, n == Small && p.large == nil
	return buf[:n], err
}

func (p *Piece) shrink() {
	if p.large == nil {
		return
	}
	larges.Put(p.large)
	p.large = nil
	<-p.pool.places
}

// Copy moves src to its end, each part as it comes.
func (p *Pool) Copy(dst io.Writer, src io.Reader) error {
	piece := p.Piece()
	defer piece.Release()
	for {
		b, err := piece.Read(src)
		if len(b) > 0 {
			if _, err := dst.Write(b); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // a wrapped one is no end
			return nil
		case err != nil:
			return err
		}
	}
}
