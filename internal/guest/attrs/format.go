package attrs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What the kernel allows, and what a hostile note could otherwise ask for. A
// path may be longer than a system call takes.
const (
	maxPath  = 1 << 20
	maxName  = 255
	maxValue = 64 << 10
	maxCount = 1 << 16 // attributes of one file
	maxNsec  = 1e9
)

// record is what is kept of one file.
type record struct {
	path      string // below the root, without a leading "/"
	sec, nsec int64  // modification time
	xattrs    []xattr
}

type xattr struct {
	name  string
	value []byte
}

// writer writes records. Errors show in close.
type writer struct {
	w   *bufio.Writer
	buf [binary.MaxVarintLen64]byte
}

func newWriter(w io.Writer) *writer { return &writer{w: bufio.NewWriterSize(w, bufferSize)} }

const bufferSize = 256 << 10

func (w *writer) uint(n uint64) { _, _ = w.w.Write(binary.AppendUvarint(w.buf[:0], n)) }
func (w *writer) int(n int64)   { _, _ = w.w.Write(binary.AppendVarint(w.buf[:0], n)) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	_, _ = w.w.WriteString(s)
}

func (w *writer) write(r record) {
	w.text(r.path)
	w.int(r.sec)
	w.uint(uint64(r.nsec))
	w.uint(uint64(len(r.xattrs)))
	for _, x := range r.xattrs {
		w.text(x.name)
		w.text(string(x.value))
	}
}

// close writes the end and tells whether everything was written.
func (w *writer) close() error {
	w.text("")
	return w.w.Flush()
}

var errDamaged = errors.New("the note of attributes is damaged")

// reader reads records.
type reader struct{ r *bufio.Reader }

func newReader(r io.Reader) *reader { return &reader{bufio.NewReaderSize(r, bufferSize)} }

func (r *reader) uint(limit uint64) (uint64, error) {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if n > limit {
		return 0, fmt.Errorf("%w: %d is more than %d", errDamaged, n, limit)
	}
	return n, nil
}

func (r *reader) text(limit uint64) ([]byte, error) {
	n, err := r.uint(limit)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return b, nil
}

// errEnd is what read returns behind the last record; the end of the file is
// none.
var errEnd = errors.New("no more records")

func (r *reader) read() (record, error) {
	path, err := r.text(maxPath)
	if err != nil {
		return record{}, err
	}
	if len(path) == 0 {
		return record{}, errEnd
	}
	rec := record{path: string(path)}
	if rec.sec, err = binary.ReadVarint(r.r); err != nil {
		return record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	nsec, err := r.uint(maxNsec - 1)
	if err != nil {
		return record{}, err
	}
	rec.nsec = int64(nsec)
	count, err := r.uint(maxCount)
	if err != nil {
		return record{}, err
	}
	for range count {
		name, err := r.text(maxName)
		if err != nil {
			return record{}, err
		}
		value, err := r.text(maxValue)
		if err != nil {
			return record{}, err
		}
		rec.xattrs = append(rec.xattrs, xattr{string(name), value})
	}
	return rec, nil
}
