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
// stream in parts of any size. A nil Scrubber changes nothing.
type Scrubber struct {
	texts    []string
	values   []valueOf // of each text
	guesses  *Guesses
	search   *search
	readings []*reading
	held     []byte // the end of what came, which may be the beginning of a text
	pos      int64  // where in the stream it begins
	out      []byte
}

// valueOf is the value that a text is a form of.
type valueOf struct {
	id   uint64 // by guesses
	size int
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

// New hides values. It is nil if there is nothing to hide.
func New(values []string, g *Guesses) *Scrubber {
	hide := make([][]string, 0, len(values))
	for _, v := range values {
		if v != "" {
			hide = append(hide, forms(v))
		}
	}
	return newScrubber(hide, g)
}

// newScrubber hides values in the given forms, the first of which is the value itself.
func newScrubber(hide [][]string, g *Guesses) *Scrubber {
	s := &Scrubber{guesses: g}
	for _, forms := range hide {
		for _, text := range forms {
			if text != "" {
				s.texts = append(s.texts, text)
				s.values = append(s.values, valueOf{g.id(forms[0]), len(forms[0])})
			}
		}
	}
	if len(s.texts) == 0 {
		return nil
	}
	s.search = newSearch(s.texts)
	for i := range spellings {
		if sp := &spellings[i]; sp.useful(s.texts) {
			s.readings = append(s.readings, newReading(s, sp))
		}
	}
	return s
}

// Next takes a part of the stream and returns what can be passed on. It is good
// until the next call.
func (s *Scrubber) Next(p []byte) []byte {
	if s == nil {
		return p
	}
	end := s.take(p)
	pass := end
	for _, r := range s.readings {
		pass = min(pass, r.from(end))
	}
	n := max(0, pass-s.pos)
	s.out = append(s.out[:0], s.held[:n]...)
	s.held = append(s.held[:0], s.held[n:]...)
	s.pos += n
	return s.out
}

// take searches a part of the stream and holds it. It returns where it ends.
func (s *Scrubber) take(p []byte) (end int64) {
	from := s.pos + int64(len(s.held))
	if s.guesses.TooMany() {
		s.held = append(s.held, strings.Repeat("*", len(p))...)
		return from + int64(len(p))
	}
	s.held = append(s.held, p...)
	for _, r := range s.readings {
		r.next(p, from)
	}
	return from + int64(len(p))
}

// missed notes that the beginning of a text was not followed by the rest of it.
func (s *Scrubber) missed(n *searchNode) {
	if n.depth >= guessed && n.match == 0 {
		v := s.values[n.text]
		s.guesses.note(v, int(n.depth)*v.size/len(s.texts[n.text]))
	}
}

// Rest returns what is held back at the end of a stream, which may be followed by
// another one.
func (s *Scrubber) Rest() []byte {
	if s == nil {
		return nil
	}
	for _, r := range s.readings {
		r.cut(s.pos + int64(len(s.held)))
	}
	return s.release()
}

// release gives out all that is held and begins anew.
func (s *Scrubber) release() []byte {
	s.out = append(s.out[:0], s.held...)
	s.held, s.pos = s.held[:0], 0
	for _, r := range s.readings {
		r.at, r.escape, r.starred, r.done = 0, r.escape[:0], 0, 0
	}
	return s.out
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
		lower := strings.ToLower(name)
		for i := range s.texts {
			if strings.Contains(lower, strings.ToLower(s.texts[i])) {
				delete(h, name)
			}
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
