package hide

import (
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// spelling is a way in which servers write text in what they answer. Encoders
// differ in what they escape and how, so escapes are read, whichever they are,
// rather than written.
type spelling struct {
	// mark is what an escape begins with. 0: there are none.
	mark byte
	// read reads an escape. more: it may go on; neither more nor text: it is none.
	read func(escape []byte) (text []byte, more bool)
	// instead are bytes that stand for others.
	instead map[byte]byte
}

// spellings are all that are known.
var spellings = []spelling{
	{}, // as it is
	{mark: '%', read: readPercent},
	{mark: '%', read: readPercent, instead: map[byte]byte{'+': ' '}}, // forms
	{mark: '\\', read: readBackslash},
	{mark: '&', read: readEntity},
	{instead: map[byte]byte{'-': '+', '_': '/'}}, // base64 for URLs
}

// useful reports whether texts may be written in it in a way of their own.
func (sp *spelling) useful(texts []string) bool {
	for _, as := range sp.instead {
		if slices.ContainsFunc(texts, func(t string) bool { return strings.IndexByte(t, as) >= 0 }) {
			return true
		}
	}
	return sp.instead == nil
}

// maxEscape is the length of the longest escape: two of UTF-16 in JSON.
const maxEscape = 12

// hexadecimal reads a number of n digits. more: they are not there yet.
func hexadecimal(digits []byte, n int) (v uint64, ok, more bool) {
	part := digits[:min(n, len(digits))]
	if len(part) == 0 {
		return 0, false, true
	}
	v, err := strconv.ParseUint(string(part), 16, 32)
	return v, err == nil && len(part) == n, err == nil && len(part) < n
}

// readPercent reads an escape of URLs.
func readPercent(e []byte) ([]byte, bool) {
	v, ok, more := hexadecimal(e[1:], 2)
	if !ok {
		return nil, more
	}
	return []byte{byte(v)}, false
}

// readBackslash reads an escape of JSON, or of the scripts that it comes from.
func readBackslash(e []byte) ([]byte, bool) {
	if len(e) < 2 {
		return nil, true
	}
	switch e[1] {
	case '"', '\'', '/', '\\', '`':
		return e[1:2], false
	case 'x':
		v, ok, more := hexadecimal(e[2:], 2)
		if !ok {
			return nil, more
		}
		return utf8.AppendRune(nil, rune(v)), false
	case 'u':
		return readUTF16(e)
	}
	return nil, false
}

func readUTF16(e []byte) ([]byte, bool) {
	v, ok, more := hexadecimal(e[2:], 4)
	r := rune(v)
	switch {
	case !ok:
		return nil, more
	case !utf16.IsSurrogate(r):
		return utf8.AppendRune(nil, r), false
	case len(e) == 6, len(e) == 7 && e[6] == '\\':
		return nil, true
	case e[6] != '\\' || e[7] != 'u':
		return nil, false
	}
	low, ok, more := hexadecimal(e[8:], 4)
	if r = utf16.DecodeRune(r, rune(low)); !ok || r == utf8.RuneError {
		return nil, more
	}
	return utf8.AppendRune(nil, r), false
}

// readEntity reads an escape of HTML or XML.
func readEntity(e []byte) ([]byte, bool) {
	switch c := e[len(e)-1]; {
	case c == ';':
		if text := html.UnescapeString(string(e)); text != string(e) {
			return []byte(text), false
		}
		return nil, false
	case len(e) == 1, c == '#' && len(e) == 2, c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return nil, len(e) < maxEscape
	}
	return nil, false
}

// reading searches a stream in one spelling.
type reading struct {
	*spelling
	s      *Scrubber
	begins [256]bool // what may begin a text or an escape
	at     int32     // the node of the search
	escape []byte    // the beginning of one at the end of what was read
	// starts says where in the stream each of the last bytes begins that were read
	// (modulo 2³²), and count how many there were.
	starts []uint32
	count  uint32
	// All from starred to done has its stars.
	starred, done int64
}

func newReading(s *Scrubber, sp *spelling) *reading {
	r := &reading{spelling: sp, s: s, starts: make([]uint32, s.search.longest+1)}
	for c := range r.begins {
		r.begins[c] = s.search.first[small(byte(c))] != 0 || sp.mark != 0 && byte(c) == sp.mark
	}
	for c, as := range sp.instead {
		r.begins[c] = s.search.first[small(as)] != 0
	}
	return r
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
	r.at = r.s.search.step(r.at, c)
	if r.node().depth <= before.depth {
		r.s.missed(before)
	}
	r.starts[r.count%uint32(len(r.starts))] = uint32(begin)
	r.count++
	if n := r.node().match; n > 0 {
		r.star(n, end)
	}
}

func (r *reading) node() *searchNode { return &r.s.search.nodes[r.at] }

// star puts stars over the last n bytes of the text, which end at end.
func (r *reading) star(n int32, end int64) {
	s := r.s
	i := max(r.startOf(n, end), s.pos)
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

// startOf is where the last n bytes of the text begin, seen from a place behind
// them.
func (r *reading) startOf(n int32, end int64) int64 {
	at := r.starts[(r.count-uint32(n))%uint32(len(r.starts))]
	return end - int64(uint32(end)-at)
}

// from is the first byte at or before end that may be of a text that goes on.
func (r *reading) from(end int64) int64 {
	switch n := r.node().depth - chance; {
	case n > 0:
		return r.startOf(n, end)
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
