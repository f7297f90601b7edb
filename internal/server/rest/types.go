package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/sandbox"
)

// malformed is what was sent in place of a value. Types that read several
// spellings keep it and report it later, when it is known where it stood.
type malformed struct {
	raw       json.RawMessage
	kind, msg string
}

func (m *malformed) report(at *huma.PathBuffer) []error {
	if m.raw == nil {
		return nil
	}
	var input any
	_ = json.Unmarshal(m.raw, &input) // it was valid JSON before
	return []error{&FieldError{Type: m.kind, Loc: location(at.String()), Msg: m.msg, Input: short(input)}}
}

// anyOf documents a type of several spellings. They are not checked against
// it: the types' own words are better.
func anyOf(doc string, schemas ...map[string]any) *huma.Schema {
	return &huma.Schema{Description: doc, Extensions: map[string]any{"anyOf": schemas}}
}

// Bool is a boolean in any spelling that clients use: true and false, 0 and 1,
// and the texts true, yes, on, t, y, 1 and their opposites in any case.
type Bool struct {
	Value bool
	bad   malformed
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (b *Bool) UnmarshalJSON(data []byte) error {
	if err := b.UnmarshalText(bytes.Trim(data, `"`)); err != nil {
		b.bad = malformed{bytes.Clone(data), "bool_parsing", err.Error()}
	}
	return nil
}

// MarshalJSON writes true or false.
func (b Bool) MarshalJSON() ([]byte, error) { return json.Marshal(b.Value) }

var errBool = errors.New("it must be true or false")

// UnmarshalText reads a parameter.
func (b *Bool) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "true", "yes", "on", "t", "y", "1":
		b.Value = true
	case "false", "no", "off", "f", "n", "0":
		b.Value = false
	default:
		return errBool
	}
	return nil
}

// Resolve reports a value that is none.
func (b *Bool) Resolve(_ huma.Context, at *huma.PathBuffer) []error { return b.bad.report(at) }

// Schema documents the type.
func (b *Bool) Schema(huma.Registry) *huma.Schema {
	return anyOf("A boolean; also 0, 1 and texts such as yes and no.",
		map[string]any{"type": "boolean"},
		map[string]any{"type": "integer", "enum": []int{0, 1}},
		map[string]any{"type": "string", "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[yY][eE][sS]|[nN][oO]|[oO][nN]|[oO][fF][fF]|[tTfFyYnN01])$"})
}

// Size is a number of bytes, or a text such as 512m. Numbers outside of what
// Bytes can hold become the nearest, so that the check of what is allowed
// refuses them.
type Size struct {
	Bytes int64
	bad   malformed
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (s *Size) UnmarshalJSON(data []byte) error {
	var text string
	var number float64
	var err error
	switch {
	case string(data) == "null":
	case json.Unmarshal(data, &s.Bytes) == nil: // exact, which a float isn't
		return nil
	case json.Unmarshal(data, &text) == nil:
		if s.Bytes, err = sandbox.ParseSize("", text); err == nil {
			return nil
		}
	case readNumber(data, &number) && number == math.Trunc(number):
		s.Bytes = whole(number)
		return nil
	}
	s.bad = malformed{bytes.Clone(data), "size_parsing", "it must be a size: a number of bytes, or a text such as 512m or 2g"}
	return nil
}

// MarshalJSON writes the bytes.
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal(s.Bytes) }

// Resolve reports a value that is none.
func (s *Size) Resolve(_ huma.Context, at *huma.PathBuffer) []error { return s.bad.report(at) }

// Schema documents the type.
func (s *Size) Schema(huma.Registry) *huma.Schema {
	return anyOf("Bytes; also a text such as 512m or 2g, binary.",
		map[string]any{"type": "integer", "minimum": 0}, map[string]any{"type": "string", "pattern": "^[0-9]{1,9}[kmgKMG]?$"})
}

// Duration is a number of seconds, or a text such as 1m30s. Numbers outside of
// what Value can hold become the nearest.
type Duration struct {
	Value time.Duration
	bad   malformed
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	var number float64
	var err error
	switch {
	case string(data) == "null":
	case readNumber(data, &number):
		d.Value = time.Duration(whole(math.Round(number * float64(time.Second))))
		return nil
	case json.Unmarshal(data, &text) == nil:
		if d.Value, err = sandbox.ParseDuration("", text); err == nil {
			return nil
		}
	}
	d.bad = malformed{bytes.Clone(data), "duration_parsing", "it must be a duration: a number of seconds, or a text such as 1m30s"}
	return nil
}

// MarshalJSON writes seconds.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.Value.Seconds()) }

// Resolve reports a value that is none.
func (d *Duration) Resolve(_ huma.Context, at *huma.PathBuffer) []error { return d.bad.report(at) }

// Schema documents the type.
func (d *Duration) Schema(huma.Registry) *huma.Schema {
	return anyOf("Seconds; also a text such as 1m30s.",
		map[string]any{"type": "number", "minimum": 0}, map[string]any{"type": "string", "pattern": "^[0-9]{1,6}(ms|s|m|h)$"})
}

// Page is the wish for a part of a list.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Entries of one page, at most."`
	Cursor string `query:"cursor" maxLength:"128" doc:"next_cursor of the page before."`
}

// List is a page. Its items are never null.
type List[T any] struct {
	Items      []T     `json:"items" nullable:"false"`
	NextCursor *string `json:"next_cursor" doc:"Continues the list; null: that was all."`
}

// list makes a page; an empty next is the end.
func list[T any](items []T, next string) List[T] {
	l := List[T]{Items: items}
	if items == nil {
		l.Items = []T{}
	}
	if next != "" {
		l.NextCursor = &next
	}
	return l
}
