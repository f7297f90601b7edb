package rest

import (
	"io"
	"sync"
)

// bodyPiece is how much of a file goes to the client at once. net/http alone
// would take 32 KiB, and each piece costs system calls on both sides; so much
// more makes no difference.
const bodyPiece = 256 << 10

var bodyPieces = sync.Pool{New: func() any { b := make([]byte, bodyPiece); return &b }}

// copyBody copies a file or an archive to its end.
func copyBody(w io.Writer, r io.Reader) (int64, error) {
	buf := bodyPieces.Get().(*[]byte)
	defer bodyPieces.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, *buf) // hides ReadFrom and WriteTo
}
