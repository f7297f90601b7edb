package egress

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// scrubber keeps texts out of a server's answer: each of their bytes becomes a
// star, so that lengths, ranges and frames stay what they were. It takes a stream
// in parts of any size. A nil scrubber changes nothing.
type scrubber struct {
	texts []hiddenText
	held  []byte // the end of what came, which may be the beginning of a text
	out   []byte
}

// chance is how many bytes may look like the beginning of a text without being
// held back: whoever waits for the last bytes of a message would wait for ever if
// those happen to be such a beginning.
const chance = 3

// hiddenText is one text, with the state of the search for it (Knuth, Morris and
// Pratt): linear in the stream, whatever is in it.
type hiddenText struct {
	text []byte
	// back[i] is the length of the longest beginning of the text that ends its
	// first i+1 bytes and is shorter than they are.
	back []int32
	at   int32 // so many bytes at the end of the stream are a beginning of the text
}

// newScrubber is nil if there is nothing to hide.
func newScrubber(texts []string) *scrubber {
	s := new(scrubber)
	for _, t := range texts {
		if t == "" {
			continue
		}
		h := hiddenText{text: []byte(t), back: make([]int32, len(t))}
		for i := 1; i < len(t); i++ {
			h.back[i] = h.step(h.back[i-1], t[i])
		}
		s.texts = append(s.texts, h)
	}
	if len(s.texts) == 0 {
		return nil
	}
	return s
}

// step goes on with c behind the first at bytes of the text.
func (h *hiddenText) step(at int32, c byte) int32 {
	for at > 0 && h.text[at] != c {
		at = h.back[at-1]
	}
	if h.text[at] == c {
		at++
	}
	return at
}

// next takes a part of the stream and returns what can be passed on. It is good
// until the next call.
func (s *scrubber) next(p []byte) []byte {
	if s == nil {
		return p
	}
	from := len(s.held)
	s.held = append(s.held, p...)
	keep := 0
	for i := range s.texts {
		s.texts[i].mask(p, s.held, from)
		keep = max(keep, int(s.texts[i].at)-chance)
	}
	n := len(s.held) - keep
	s.out = append(s.out[:0], s.held[:n]...)
	s.held = append(s.held[:0], s.held[n:]...)
	return s.out
}

// rest returns what is held back at the end of a stream, which may be followed by
// another one.
func (s *scrubber) rest() []byte {
	if s == nil {
		return nil
	}
	s.out = append(s.out[:0], s.held...)
	s.held = s.held[:0]
	for i := range s.texts {
		s.texts[i].at = 0
	}
	return s.out
}

// mask searches the part p of the stream and puts stars in its copy, which begins
// in held at from.
func (h *hiddenText) mask(p, held []byte, from int) {
	done := 0 // all before it that matched has its stars
	for i := 0; i < len(p); i++ {
		if h.at == 0 {
			skip := bytes.IndexByte(p[i:], h.text[0])
			if skip < 0 {
				return
			}
			i += skip
		}
		if h.at = h.step(h.at, p[i]); int(h.at) < len(h.text) {
			continue
		}
		h.at = h.back[h.at-1]
		end := from + i + 1
		for j := max(0, done, end-len(h.text)); j < end; j++ {
			held[j] = '*'
		}
		done = end
	}
}

// whole is a text that is no part of a stream.
func (s *scrubber) whole(text string) string {
	alone := scrubber{texts: append([]hiddenText(nil), s.texts...)}
	for i := range alone.texts {
		alone.texts[i].at = 0
	}
	clean := string(alone.next([]byte(text)))
	return clean + string(alone.rest())
}

// header keeps the texts out of fields. Names, whose letters may have changed
// their case, go with their fields.
func (s *scrubber) header(h http.Header) {
	if s == nil {
		return
	}
	for name, values := range h {
		for i, v := range values {
			values[i] = s.whole(v)
		}
		lower := strings.ToLower(name)
		for i := range s.texts {
			if strings.Contains(lower, strings.ToLower(string(s.texts[i].text))) {
				delete(h, name)
			}
		}
	}
}

// answer keeps the texts out of the head of an answer.
func (s *scrubber) answer(resp *http.Response) {
	if s == nil {
		return
	}
	resp.Status = s.whole(resp.Status)
	s.header(resp.Header)
	s.header(resp.Trailer)
}

// reader reads a stream without the texts.
func (s *scrubber) reader(r io.Reader) io.Reader {
	if s == nil {
		return struct{ io.Reader }{r}
	}
	return &scrubReader{s: s, r: r, buf: make([]byte, bufferSize)}
}

type scrubReader struct {
	s    *scrubber
	r    io.Reader
	buf  []byte
	left []byte // to be given out
	err  error  // of r; when it comes, all is in left
}

func (r *scrubReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		n, err := r.r.Read(r.buf)
		r.left = r.s.next(r.buf[:n])
		if r.err = err; err != nil {
			r.left = append(bytes.Clone(r.left), r.s.rest()...)
		}
	}
	n := copy(p, r.left)
	if r.left = r.left[n:]; len(r.left) > 0 {
		return n, nil
	}
	return n, r.err
}

// encoded reports whether the body of an answer is in a form in which texts can't
// be found.
func encoded(h http.Header) bool {
	for _, v := range h["Content-Encoding"] {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}

// refuseEncoded answers in place of a server that encodes what it was asked not
// to.
func (x *exchange) refuseEncoded() bool {
	x.gone.stop()
	clean := x.body.stop()
	return x.refuse(x.f, x.req, &refusal{
		status: http.StatusBadGateway, code: CodeSecret,
		text: "Proxy error: the server's answer is encoded, although it was asked not to, and can't be searched for the secret that was put into the request",
	}) && clean
}
