package hide

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"agentbox/internal/pump"
)

// Scrubber keeps texts out of a server's answer, in all spellings: each byte of
// them becomes a star, so that lengths and frames stay what they were. It takes a
// stream in parts of any size, and must be closed. A nil Scrubber changes nothing.
type Scrubber struct {
	sought   *sought
	guesses  *Guesses
	free     func()
	readings []reading
	held     []byte // the end of what came, which may be the beginning of a text
	pos      int64  // where in the stream it begins
	passed   int    // bytes of held that were passed on by the last call
}

const (
	// chance is how many bytes may look like the beginning of a text without being
	// held back: whoever waits for the last bytes of a message would wait for ever
	// if those happen to be such a beginning.
	chance = 3
	// cutText is how many bytes of a text, and at least half of it, are hidden at the
	// end of a stream that has no more of it, such as one that was cut. If fewer
	// were, who has a server repeat guesses could tell the good ones, and find the
	// text byte by byte.
	cutText = 8
)

// newScrubber has what it uses of a set given back by free.
func newScrubber(t *sought, g *Guesses, free func()) *Scrubber {
	s := &Scrubber{sought: t, guesses: g, free: free, readings: make([]reading, len(t.ways))}
	for i := range s.readings {
		s.readings[i] = reading{way: &t.ways[i], s: s}
	}
	return s
}

// Close gives up what it shares with others.
func (s *Scrubber) Close() {
	if s != nil {
		s.free()
	}
}

// Next takes a part of the stream and returns what can be passed on. It is good
// until the next call.
func (s *Scrubber) Next(p []byte) []byte {
	if s == nil {
		return p
	}
	end := s.take(p)
	pass := end
	for i := range s.readings {
		pass = min(pass, s.readings[i].from(end))
		s.readings[i].rest()
	}
	s.passed = int(max(0, pass-s.pos))
	return s.held[:s.passed]
}

// room makes room for n bytes, where the passed ones were. Memory that a large part
// took does not stay: parts are large in few streams at a time, but once in many.
func (s *Scrubber) room(n int) {
	left := s.held[s.passed:]
	s.pos += int64(s.passed)
	s.passed = 0
	if n += len(left); n < cap(s.held)/2 && cap(s.held) > 2*pump.Small {
		s.held = make([]byte, 0, n)
	}
	s.held = append(s.held[:0], left...)
}

// take searches a part of the stream and holds it. It returns where it ends.
func (s *Scrubber) take(p []byte) (end int64) {
	s.room(len(p))
	from := s.pos + int64(len(s.held))
	s.held = append(s.held, p...)
	if s.guesses.TooMany() {
		// Also of what was held back, whose reading ends: it would be held for ever.
		for i := range s.held {
			s.held[i] = '*'
		}
		s.restart()
		return from + int64(len(p))
	}
	for i := range s.readings {
		s.readings[i].next(p, from)
	}
	return from + int64(len(p))
}

// missed notes that the beginning of a text was not followed by the rest of it.
func (s *Scrubber) missed(n *searchNode) {
	if n.depth >= guessed && n.match == 0 {
		t := &s.sought.texts[n.text]
		s.guesses.note(t.value, int(n.depth)*t.value.size/t.size)
	}
}

// Rest returns what is held back at the end of a stream, which may be followed by
// another one.
func (s *Scrubber) Rest() []byte {
	if s == nil {
		return nil
	}
	s.room(0)
	for i := range s.readings {
		s.readings[i].cut(s.pos + int64(len(s.held)))
	}
	return s.release()
}

// release gives out all that is held and begins anew.
func (s *Scrubber) release() []byte {
	all := s.held
	s.held, s.pos = s.held[:0], 0
	s.restart()
	return all
}

// restart has the readings forget what came.
func (s *Scrubber) restart() {
	for i := range s.readings {
		r := &s.readings[i]
		r.at, r.escape, r.starred, r.done = 0, r.escape[:0], 0, 0
	}
}

// whole is a text that is no part of a stream, and so was not cut. There must be
// none on its way.
func (s *Scrubber) whole(text string) string {
	s.take([]byte(text))
	return string(s.release())
}

// Header keeps the texts out of fields. Names, whose letters may have changed
// their case, go with their fields.
func (s *Scrubber) Header(h http.Header) {
	if s == nil {
		return
	}
	for name, values := range h {
		for i, v := range values {
			values[i] = s.whole(v)
		}
		if s.sought.search.in(name) {
			delete(h, name)
		}
	}
}

// Answer keeps the texts out of the head of an answer.
func (s *Scrubber) Answer(resp *http.Response) {
	if s == nil {
		return
	}
	resp.Status = s.whole(resp.Status)
	s.Header(resp.Header)
	s.Header(resp.Trailer)
}

// Reader reads a stream without the texts.
func (s *Scrubber) Reader(r io.Reader) io.Reader {
	if s == nil {
		return struct{ io.Reader }{r}
	}
	return &scrubReader{s: s, r: r, buf: make([]byte, pump.Small)}
}

type scrubReader struct {
	s    *Scrubber
	r    io.Reader
	buf  []byte
	left []byte // to be given out
	err  error  // of r; when it comes, all is in left
}

func (r *scrubReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		n, err := r.r.Read(r.buf)
		r.left = r.s.Next(r.buf[:n])
		if r.err = err; err != nil {
			r.left = append(bytes.Clone(r.left), r.s.Rest()...)
		}
	}
	n := copy(p, r.left)
	if r.left = r.left[n:]; len(r.left) > 0 {
		return n, nil
	}
	return n, r.err
}

// Encoded reports whether the body of an answer is in a form in which texts can't
// be found.
func Encoded(h http.Header) bool {
	for _, v := range h["Content-Encoding"] {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}
