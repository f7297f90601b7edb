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
