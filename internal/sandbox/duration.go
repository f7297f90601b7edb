package sandbox

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a span of time: a number of seconds ("1800", "0.5") or
// numbers with units ("1m30s", "24h"). It is never negative. field names the
// value in the error.
func ParseDuration(field, s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	bad := &InvalidError{Field: field, Value: s, Allowed: "seconds such as 90 or 0.5, or a text such as 1m30s"}
	if t == "" || strings.ContainsAny(t, "+-eExX_pPiI") { // no signs, exponents, hex, "inf"
		return 0, bad
	}
	if d, err := time.ParseDuration(t); err == nil {
		return d, nil
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || math.IsNaN(f) || f >= math.MaxInt64/float64(time.Second) {
		return 0, bad
	}
	return time.Duration(f * float64(time.Second)), nil
}
