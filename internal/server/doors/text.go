package doors

import (
	"io"

	"agentbox/internal/guest/wording"
)

// How output becomes text is the same in a sandbox's own API: package wording.

// CutMark follows a text that had more.
const CutMark = wording.CutMark

// Chars keeps characters whole that lie across two parts of a stream.
type Chars = wording.Chars

// JSONText writes bytes as the inside of a JSON string.
type JSONText = wording.JSONText

// NewJSONText returns a JSONText that writes to w.
func NewJSONText(w io.Writer) *JSONText { return wording.NewJSONText(w) }

// EncodeJSON writes JSON as all answers have it.
func EncodeJSON(w io.Writer, v any) error { return wording.EncodeJSON(w, v) }

// SplitLen is how many bytes at the end of p may be the begin of a character.
func SplitLen(p []byte) int { return wording.SplitLen(p) }

// Text is p with U+FFFD for each byte that is no UTF-8.
func Text(p []byte) string { return wording.Text(p) }
