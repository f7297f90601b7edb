package hide

// reading searches a stream in one spelling.
type reading struct {
	*way
	s      *Scrubber
	at     int32  // the node of the search
	escape []byte // the beginning of one at the end of what was read
	starts starts
	// All from starred to done has its stars.
	starred, done int64
}

// starts says where in the stream each of the last bytes of the text begins (modulo
// 2³²): of as many as any beginning of a hidden text had yet, which are few where
// there is none.
type starts struct {
	ring  []uint32 // its length is 0 or a power of 2, so that count may overflow
	count uint32
}

// fewStarts is how many a ring begins with, manyStarts are more than it keeps when
// nothing is asked for: an answer may last for hours after a long text.
const fewStarts, manyStarts = 16, 256

// add notes the begin of a byte, which is the last of n that are asked for.
func (s *starts) add(begin int64, n int32) {
	if int(n) >= len(s.ring) {
		s.grow()
	}
	s.ring[s.count%uint32(len(s.ring))] = uint32(begin)
	s.count++
}

func (s *starts) grow() {
	ring := make([]uint32, max(fewStarts, 2*len(s.ring)))
	for back := uint32(1); int(back) <= len(s.ring); back++ {
		i := s.count - back
		ring[i%uint32(len(ring))] = s.ring[i%uint32(len(s.ring))]
	}
	s.ring = ring
}

// last is where the last n bytes begin, seen from a place behind them.
func (s *starts) last(n int32, end int64) int64 {
	return end - int64(uint32(end)-s.ring[(s.count-uint32(n))%uint32(len(s.ring))])
}

// next reads the part p of the stream, which begins at pos.
func (r *reading) next(p []byte, pos int64) {
	for i := 0; i < len(p); i++ {
		if r.at == 0 && len(r.escape) == 0 {
			for i < len(p) && !r.begins[p[i]] {
				i++
			}
			if i == len(p) {
				return
			}
		}
		r.take(p[i], pos+int64(i)+1)
	}
}

// take reads one byte, which ends at end.
func (r *reading) take(c byte, end int64) {
	if len(r.escape) == 0 && (r.mark == 0 || c != r.mark) {
		if as, ok := r.instead[c]; ok {
			c = as
		}
		r.step(c, end-1, end)
		return
	}
	r.escape = append(r.escape, c)
	text, more := r.read(r.escape)
	if more {
		return
	}
	begin := end - int64(len(r.escape))
	var plain [maxEscape]byte
	n := copy(plain[:], r.escape)
	r.escape = r.escape[:0]
	for _, c := range text {
		r.step(c, begin, end)
	}
	if text == nil {
		r.step(plain[0], begin, begin+1)
		for i := 1; i < n; i++ {
			r.take(plain[i], begin+int64(i)+1)
		}
	}
}

// step goes on with a byte of the text, written from begin to end.
func (r *reading) step(c byte, begin, end int64) {
	before := r.node()
	r.at = r.s.sought.search.step(r.at, c)
	if r.node().depth <= before.depth {
		r.s.missed(before)
	}
	r.starts.add(begin, r.node().depth)
	if n := r.node().match; n > 0 {
		r.star(n, end)
	}
}

func (r *reading) node() *searchNode { return &r.s.sought.search.nodes[r.at] }

// star puts stars over the last n bytes of the text, which end at end.
func (r *reading) star(n int32, end int64) {
	s := r.s
	i := max(r.starts.last(n, end), s.pos)
	if i >= r.starred && i <= r.done {
		i = r.done // what was done before is not done again
	} else {
		r.starred = i // such as of a text with another one in it
	}
	for ; i < end; i++ {
		s.held[i-s.pos] = '*'
	}
	r.done = end
}

// rest gives up what a long text took, between parts of the stream.
func (r *reading) rest() {
	if r.at == 0 && len(r.starts.ring) > manyStarts {
		r.starts = starts{}
	}
}

// from is the first byte at or before end that may be of a text that goes on.
func (r *reading) from(end int64) int64 {
	switch n := r.node().depth - chance; {
	case n > 0:
		return r.starts.last(n, end)
	case n == 0:
		return end - int64(len(r.escape))
	}
	return end
}

// cut puts stars over what is so long a beginning of a text that it is none by
// chance, at the end of a stream.
func (r *reading) cut(end int64) {
	n := r.node()
	if n.most {
		r.star(n.depth, end)
	}
	r.s.missed(n)
}
