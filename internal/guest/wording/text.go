package wording

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// CutMark follows a text that had more.
const CutMark = "\n... [output truncated]"

// SplitLen is how many bytes at the end of p may be the begin of a character.
func SplitLen(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if b := p[len(p)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Text is p with U+FFFD for each byte that is no UTF-8.
func Text(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var b strings.Builder
	b.Grow(len(p) + 16)
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		b.WriteRune(r)
		p = p[n:]
	}
	return b.String()
}

// Chars holds back the bytes of a stream at its end that may be the begin of a
// character. The zero value is ready.
type Chars struct{ tail []byte }

// Whole gives what was held back and p, up to the end of a character.
func (c *Chars) Whole(p []byte) []byte {
	if len(c.tail) > 0 {
		p = append(c.tail, p...)
	}
	whole := len(p) - SplitLen(p)
	c.tail = append([]byte(nil), p[whole:]...)
	return p[:whole]
}

// Rest gives what is held back: the stream is over.
func (c *Chars) Rest() []byte {
	rest := c.tail
	c.tail = nil
	return rest
}

// EncodeJSON writes JSON as all answers have it.
func EncodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// JSONText writes bytes as the inside of a JSON string, with U+FFFD for what is no
// UTF-8. Characters that lie across two writes stay whole.
type JSONText struct {
	w    io.Writer
	tail []byte // the begin of a character
}

// NewJSONText returns a JSONText that writes to w.
func NewJSONText(w io.Writer) *JSONText { return &JSONText{w: w} }

// Write implements io.Writer.
func (t *JSONText) Write(p []byte) (int, error) {
	n := len(p)
	p = append(t.tail, p...)
	whole := len(p) - SplitLen(p)
	t.tail = append([]byte(nil), p[whole:]...)
	return n, t.write(p[:whole])
}

// End writes what stayed in parts, and a last text.
func (t *JSONText) End(last string) error { return t.write(append(t.tail, last...)) }

func (t *JSONText) write(p []byte) error {
	var quoted bytes.Buffer
	if err := EncodeJSON(&quoted, string(p)); err != nil {
		return err
	}
	b := bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))
	_, err := t.w.Write(b[1 : len(b)-1])
	return err
}
