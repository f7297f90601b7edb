package sandbox

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes: digits, optionally with a fraction and one
// of the binary suffixes k, m, g, t (also kb, kib, …; any case). "512m" is 512
// MiB. field names the value in the error.
func ParseSize(field, s string) (int64, error) {
	bad := func() (int64, error) {
		return 0, &InvalidError{Field: field, Value: s, Allowed: "a size such as 268435456, 512m or 2g"}
	}
	t := strings.ToLower(strings.TrimSpace(s))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "b"), "i")
	shift := 0
	if n := len(t); n > 0 {
		if i := strings.IndexByte("kmgt", t[n-1]); i >= 0 {
			shift, t = 10*(i+1), t[:n-1]
		}
	}
	if t == "" || strings.ContainsAny(t, "+-eEx_npi") { // no signs, exponents, hex, "inf", "nan"
		return bad()
	}
	if v, err := strconv.ParseInt(t, 10, 64); err == nil {
		if v > math.MaxInt64>>shift {
			return bad()
		}
		return v << shift, nil
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || f*float64(int64(1)<<shift) >= math.MaxInt64 {
		return bad()
	}
	return int64(f * float64(int64(1)<<shift)), nil
}

// FormatSize writes n as ParseSize reads it, in the largest unit that is exact.
func FormatSize(n int64) string {
	units := []string{"", "k", "m", "g", "t"}
	u := 0
	for n != 0 && n%1024 == 0 && u < len(units)-1 {
		n, u = n/1024, u+1
	}
	return fmt.Sprintf("%d%s", n, units[u])
}
