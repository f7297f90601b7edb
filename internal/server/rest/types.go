package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Bool is a boolean in any spelling that clients use: true and false, 0 and 1,
// and the texts true, yes, on, t, y, 1 and their opposites in any case.
type Bool struct {
	Value bool
	bad   json.RawMessage // what was sent instead
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (b *Bool) UnmarshalJSON(data []byte) error {
	if b.UnmarshalText(bytes.Trim(data, `"`)) != nil {
		b.bad = bytes.Clone(data)
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
func (b *Bool) Resolve(_ huma.Context, at *huma.PathBuffer) []error {
	if b.bad == nil {
		return nil
	}
	var input any
	_ = json.Unmarshal(b.bad, &input) // it was valid JSON before
	return []error{&FieldError{Type: "bool_parsing", Loc: location(at.String()), Msg: errBool.Error(), Input: short(input)}}
}

// Schema documents the type. The spellings are not checked against it: Resolve
// has the better words.
func (b *Bool) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "A boolean; also 0, 1 and texts such as yes and no.",
		Extensions: map[string]any{"anyOf": []map[string]any{
			{"type": "boolean"},
			{"type": "integer", "enum": []int{0, 1}},
			{"type": "string", "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[yY][eE][sS]|[nN][oO]|[oO][nN]|[oO][fF][fF]|[tTfFyYnN01])$"},
		}},
	}
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
