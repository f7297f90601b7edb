package agent

import (
	"io"
	"sync"
)

// The units in which bodies move. They begin with the small one, which is enough
// for most files: fresh memory is dear in a sandbox. Large bodies go on with the
// large one, for which the cost of a system call does not matter.
const (
	smallPiece = 32 << 10
	largePiece = 1 << 20
	// treeBuffer collects the headers and small files of trees.
	treeBuffer = 256 << 10
)

var (
	smallPieces = sync.Pool{New: func() any { b := make([]byte, smallPiece); return &b }}
	largePieces = sync.Pool{New: func() any { b := make([]byte, largePiece); return &b }}
)

// copyBody copies src to its end. Unlike io.Copy it leaves the size of the
// pieces to nobody else.
func copyBody(dst io.Writer, src io.Reader) error {
	pieces := &smallPieces
	buf := pieces.Get().(*[]byte)
	defer func() { pieces.Put(buf) }()
	for {
		n, err := src.Read(*buf)
		if n > 0 {
			if _, err := dst.Write((*buf)[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case n == smallPiece:
			pieces.Put(buf)
			pieces = &largePieces
			buf = pieces.Get().(*[]byte)
		}
	}
}
