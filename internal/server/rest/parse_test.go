package rest

import (
	"testing"
	"unicode/utf8"
)

// FuzzRange: whatever a client asks for lies within the file.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=9223372036854775807-", "bytes=1-4611686018427387903", "bytes=-0", "bytes=1-2,3-4", "x"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		r := parseRange(s)
		if size <= 0 || !r.set {
			return
		}
		offset, length, ok := r.within(size)
		if ok && (offset < 0 || length <= 0 || offset+length > size) {
			t.Errorf("%q of %d bytes: %d bytes from %d on", s, size, length, offset)
		}
		if r.offset < 0 || r.length < 0 || r.suffix < 0 {
			t.Errorf("%q: %+v", s, r)
		}
	})
}

// FuzzOffsets: ids of events are read as they are written.
func FuzzOffsets(f *testing.F) {
	for _, s := range []string{"1-2", "-", "1--2", "9223372036854775807-0", "18446744073709551615-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := parseOffsets("offset", s)
		if err != nil {
			return
		}
		if again, err := parseOffsets("offset", o.String()); o[0] < 0 || o[1] < 0 || err != nil || again != o {
			t.Errorf("%q: %v, again %v %v", s, o, again, err)
		}
	})
}

// FuzzSplitLen: what is held back is the begin of a character, never a whole one.
func FuzzSplitLen(f *testing.F) {
	for _, s := range []string{"a", "\xe2\x82", "\xf0\x9f\x98", "\xff", "a\xc3", "\x82\x82\x82\x82"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		n := splitLen(p)
		if n < 0 || n >= utf8.UTFMax || n > len(p) || n > 0 && utf8.FullRune(p[len(p)-n:]) {
			t.Errorf("%q: %d", p, n)
		}
	})
}
