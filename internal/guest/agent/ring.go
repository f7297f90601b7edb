package agent

// ring holds the last bytes of one output stream, addressed by their offset in
// it. It grows on demand up to its size. The owner locks.
type ring struct {
	size  int64 // most bytes to hold
	limit int64 // most bytes to take at all; 0: no limit
	next  int   // size of the next chunk

	chunks     [][]byte // each filled up to its length; the capacity is spare
	head       int      // bytes of chunks[0] that were dropped
	spare      []byte   // a dropped chunk of full size, for the next one
	first, end int64    // offsets of the first byte that is held and after the last

	total   int64 // bytes that the command wrote, those over the limit included
	dropped bool  // bytes were lost: over the limit or before they were read
}

// Chunks begin small, because most commands print little, and stay small
// enough that dropping a whole one is no loss.
const (
	minChunk = 512
	maxChunk = 64 << 10
)

// put appends p as far as the limit allows, drops the oldest bytes beyond size,
// and returns by how many bytes the memory it holds changed.
func (r *ring) put(p []byte) (grown int64) {
	before := r.held()
	r.total += int64(len(p))
	if r.limit > 0 {
		if room := r.limit - r.end; int64(len(p)) > room {
			r.dropped = true
			p = p[:max(room, 0)]
		}
	}
	for len(p) > 0 {
		last := len(r.chunks) - 1
		if last < 0 || len(r.chunks[last]) == cap(r.chunks[last]) {
			r.grow()
			continue
		}
		c := r.chunks[last]
		n := copy(c[len(c):cap(c)], p)
		r.chunks[last] = c[:len(c)+n]
		r.end += int64(n)
		p = p[n:]
		if r.end-r.first > r.size {
			r.drop(r.end - r.size)
		}
	}
	return r.held() - before
}

func (r *ring) grow() {
	r.next = min(max(2*r.next, minChunk), maxChunk, max(int(r.size), 1))
	if r.next == cap(r.spare) {
		r.chunks, r.spare = append(r.chunks, r.spare[:0]), nil
		return
	}
	r.chunks = append(r.chunks, make([]byte, 0, r.next))
}

// drop forgets the bytes before offset to and returns how much memory was
// freed.
func (r *ring) drop(to int64) (freed int64) {
	before := r.held()
	to = min(to, r.end)
	if to <= r.first {
		return 0
	}
	r.dropped = true
	r.head += int(to - r.first)
	r.first = to
	n := 0
	for n < len(r.chunks) && r.head >= len(r.chunks[n]) {
		r.head -= len(r.chunks[n])
		if cap(r.chunks[n]) == maxChunk {
			r.spare = r.chunks[n]
		}
		r.chunks[n] = nil // or the array keeps it alive
		n++
	}
	r.chunks = r.chunks[n:]
	if len(r.chunks) == 0 {
		r.chunks, r.head, r.next, r.spare = nil, 0, 0, nil
	}
	return before - r.held()
}

// copyAt copies bytes from offset off, which must be held or be the end.
func (r *ring) copyAt(p []byte, off int64) (n int) {
	skip := off - r.first + int64(r.head)
	for _, c := range r.chunks {
		if skip >= int64(len(c)) {
			skip -= int64(len(c))
			continue
		}
		m := copy(p[n:], c[skip:])
		n += m
		skip = 0
		if n == len(p) {
			break
		}
	}
	return n
}

// bytes returns a copy of what is held, at most n bytes of its end.
func (r *ring) bytes(n int64) []byte {
	from := max(r.first, r.end-n)
	b := make([]byte, r.end-from)
	return b[:r.copyAt(b, from)]
}

// held is the memory that the ring takes.
func (r *ring) held() (n int64) {
	n = int64(cap(r.spare))
	for _, c := range r.chunks {
		n += int64(cap(c))
	}
	return n
}
