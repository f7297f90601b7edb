package rest

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// Int is a whole number, in any spelling that JSON has for it. Numbers outside of
// what Value can hold become the nearest, so that the check of what is allowed
// refuses them.
type Int struct{ Value int64 }

// UnmarshalJSON never fails: what is no whole number does not pass the check
// against the document.
func (n *Int) UnmarshalJSON(data []byte) error {
	var number float64
	if json.Unmarshal(data, &n.Value) != nil && readNumber(data, &number) { // the first is exact
		n.Value = whole(number)
	}
	return nil
}

// MarshalJSON writes the number.
func (n Int) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// Schema documents the type.
func (n *Int) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeInteger} }

// Float is a number; one that is too large becomes the largest.
type Float struct{ Value float64 }

// UnmarshalJSON never fails: what is no number does not pass the check against the
// document.
func (f *Float) UnmarshalJSON(data []byte) error {
	readNumber(data, &f.Value)
	return nil
}

// MarshalJSON writes the number.
func (f Float) MarshalJSON() ([]byte, error) { return json.Marshal(f.Value) }

// Schema documents the type.
func (f *Float) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeNumber} }

// readNumber reads a number of JSON, however large it is.
func readNumber(data []byte, to *float64) bool {
	var n json.Number
	if len(data) == 0 || data[0] == '"' || json.Unmarshal(data, &n) != nil {
		return false
	}
	f, ok := finite(n)
	if ok {
		*to = f
	}
	return ok
}

// finite is a number as a float, the largest for those that are larger.
func finite(n json.Number) (float64, bool) {
	f, err := strconv.ParseFloat(n.String(), 64)
	if math.IsInf(f, 0) {
		return math.Copysign(math.MaxFloat64, f), true
	}
	return f, err == nil
}

// plain has numbers in place of their texts.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := finite(v) // it was read as one
		return f
	case map[string]any:
		for name := range v {
			v[name] = plain(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// whole is the nearest int64. Casting what does not fit would give anything,
// also a negative number for "without limit".
func whole(f float64) int64 {
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(f)
	}
}
