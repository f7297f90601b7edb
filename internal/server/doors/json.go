package doors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep values may stand in each other; no request of ours
// goes deeper than five.
const maxDepth = 32

// MaxValues bounds the names and values of a body: each costs many times its
// bytes in memory. A command has at most 1024 variables; nothing else is near.
const MaxValues = 1 << 16

var (
	errNotUTF8 = errors.New("it is not UTF-8")
	errTooDeep = errors.New("values stand too deep in each other")
	errTooMany = fmt.Errorf("there are more than %d names and values", MaxValues)
)

// CheckJSON refuses what two readers could understand differently: bytes that are no text, deep nesting, too many values, and
// objects that have a name twice.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) || halfPair(data) {
		return errNotUTF8
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var open []map[string]bool // names so far of each open object; nil: a list
	name := false              // the next token is a name, if it is no end
	for n := 0; ; n++ {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > MaxValues:
			return errTooMany
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

// halfPair reports whether an escape of JSON is one half of a UTF-16 pair, without
// the other: some readers drop it, others put U+FFFD in its place.
func halfPair(data []byte) bool {
	var high bool // the character before was the first half of a pair
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\\')
		if high && i != 0 || i < 0 {
			return high
		}
		data = data[i+1:]
		unit, size := rune(0), min(1, len(data))
		if len(data) >= 5 && data[0] == 'u' {
			n, _ := strconv.ParseUint(string(data[1:5]), 16, 16) // what is no number is refused later
			unit, size = rune(n), 5
		}
		first := unit >= 0xd800 && unit < 0xdc00
		second := unit >= 0xdc00 && unit < 0xe000
		if high != second {
			return true
		}
		high, data = first, data[size:]
	}
	return high
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
