package procapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// content is a string of a JSON document that lies where the document lay: of a large
// one there is no room for a copy.
type content []byte

// UnmarshalJSON implements json.Unmarshaler. It takes its argument over.
func (c *content) UnmarshalJSON(b []byte) error {
	if b[0] != '"' {
		return &json.UnmarshalTypeError{Value: kindOf(b[0]), Type: reflect.TypeFor[string]()}
	}
	*c = unquote(b[1 : len(b)-1])
	return nil
}

// kindOf is the kind of a JSON value by its first byte, as package json names it.
func kindOf(first byte) string {
	switch first {
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	}
	return "number"
}

// unquote resolves the escapes of a JSON string that package json has found to be
// one, in place: no escape is shorter than what it stands for.
func unquote(s []byte) []byte {
	n := 0
	for rest := s; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return s[:n+copy(s[n:], rest)]
		}
		n += copy(s[n:], rest[:i])
		r, size := escaped(rest[i:])
		n += utf8.EncodeRune(s[n:], r)
		rest = rest[i+size:]
	}
}

var plainEscapes = [256]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped is the character of the escape at the begin of s, or of two escapes that
// belong together. Half of a pair is U+FFFD.
func escaped(s []byte) (r rune, size int) {
	const one = len(`\u0000`)
	if s[1] != 'u' {
		return plainEscapes[s[1]], 2
	}
	r = digits(s)
	if !utf16.IsSurrogate(r) {
		return r, one
	}
	if len(s) >= 2*one && s[one] == '\\' && s[one+1] == 'u' {
		if r = utf16.DecodeRune(r, digits(s[one:])); r != utf8.RuneError {
			return r, 2 * one
		}
	}
	return utf8.RuneError, one
}

// digits are those of an escape.
func digits(s []byte) rune {
	n, _ := strconv.ParseUint(string(s[2:6]), 16, 16) // package json has looked at them
	return rune(n)
}
