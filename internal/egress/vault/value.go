package vault

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentbox/internal/sandbox"
)

// Value is the value of a secret. Nothing prints it: package fmt, JSON and logs
// show a word in its place.
type Value struct{ text string }

// hidden is what is shown of a value.
const hidden = "[secret]"

// NewValue makes a value of text.
func NewValue(text string) Value { return Value{text} }

// Reveal is the value itself.
func (v Value) Reveal() string { return v.text }

// Format implements fmt.Formatter, for all verbs.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// String implements fmt.Stringer.
func (Value) String() string { return hidden }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Value) UnmarshalText(b []byte) error {
	v.text = string(b)
	return nil
}

// Lengths of values in bytes. Shorter ones are no secrets, and can't be told from
// chance in what a server answers; longer ones few servers take in a head, and the
// search for one takes some 140 times its length for as long as an answer lasts.
const (
	MinValue = 8
	MaxValue = 4 << 10
	// MaxTogether is for all those of one sandbox for one host.
	MaxTogether = 2 * MaxValue
)

func (v Value) check() error {
	bad := func(what, allowed string) error {
		return &sandbox.InvalidError{Field: "value", Value: what, Allowed: allowed}
	}
	switch n := len(v.text); {
	case n < MinValue || n > MaxValue:
		return bad(fmt.Sprintf("%d bytes", n), fmt.Sprintf("%d bytes to %s", MinValue, sandbox.FormatSize(MaxValue)))
	case !isField(v.text):
		return bad("not fit for a header", "UTF-8 without control characters such as newlines, and no space at an end")
	}
	return nil
}

// isField reports whether a text arrives as it is when it is sent in a header.
func isField(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && strings.TrimSpace(s) == s
}
