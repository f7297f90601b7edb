package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxDepth bounds how deep values may stand in each other; no request of ours
// goes deeper than five.
const maxDepth = 32

// unmarshal reads a body. What two readers could understand differently is
// refused. huma asks twice: first for any value, to check it against the
// schema, then for the type.
func unmarshal(data []byte, v any) error {
	any, first := v.(*any)
	if !first {
		return json.Unmarshal(data, v)
	}
	if err := unambiguous(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // some are too large for a float
	if err := d.Decode(any); err != nil {
		return err
	}
	*any = plain(*any)
	return nil
}

var (
	errNotUTF8 = errors.New("it is not UTF-8")
	errTooDeep = errors.New("values stand too deep in each other")
)

// unambiguous refuses bytes that are no text, deep nesting, and objects that
// have a name twice.
func unambiguous(data []byte) error {
	if !utf8.Valid(data) {
		return errNotUTF8
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []map[string]bool // names so far of each open object; nil: a list
	name := false              // the next token is a name, if it is no end
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch t := token.(type) {
		case json.Delim:
			if open, err = step(open, t); err != nil {
				return err
			}
		case string:
			if name {
				names := open[len(open)-1]
				if names[t] {
					return fmt.Errorf("the name %.40q stands twice in an object", t)
				}
				names[t], name = true, false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

// step opens or closes an object or a list.
func step(open []map[string]bool, t json.Delim) ([]map[string]bool, error) {
	switch t {
	case '{':
		open = append(open, map[string]bool{})
	case '[':
		open = append(open, nil)
	default:
		return open[:len(open)-1], nil
	}
	if len(open) > maxDepth {
		return nil, errTooDeep
	}
	return open, nil
}

// marshal writes an answer. A client that is gone is no error of ours.
func marshal(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, _ = w.Write(b.Bytes())
	return nil
}
