package hide

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// starred is what a scrubber should make of a text, found the slow way.
func starred(text []byte, hide []string) []byte {
	out := bytes.Clone(text)
	for _, h := range hide {
		for i := 0; h != "" && i+len(h) <= len(text); i++ {
			if asciiFold(string(text[i:i+len(h)])) == asciiFold(h) {
				copy(out[i:], strings.Repeat("*", len(h)))
			}
		}
	}
	return out
}

// cutOff is starred for a stream: most of a text at its end is hidden, too.
func cutOff(text []byte, hide []string) []byte {
	out := starred(text, hide)
	for _, h := range hide {
		for n := max(cutText, (len(h)+1)/2); n < min(len(h), len(text)+1); n++ {
			if strings.HasSuffix(asciiFold(string(text)), asciiFold(h[:n])) {
				copy(out[len(text)-n:], strings.Repeat("*", n))
			}
		}
	}
	return out
}

// check holds what came out against what went in.
func check(t *testing.T, in, out []byte, hide []string) {
	t.Helper()
	want := cutOff(in, hide)
	if len(out) != len(in) {
		t.Fatalf("%d bytes of %d: %q", len(out), len(in), out)
	}
	for i := range out {
		switch {
		case out[i] == want[i]:
		case out[i] != in[i]:
			t.Fatalf("at %d: %q, want %q", i, out, want)
		case !begins(in, i, hide):
			// Of what was passed on before it could be known, no more than chance
			// bytes are the beginning of a text.
			t.Fatalf("at %d a byte of a text: %q, want %q", i, out, want)
		}
	}
}

// asciiFold makes letters of ASCII small.
func asciiFold(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// begins reports whether the byte at i is one of the first of a text there.
func begins(in []byte, i int, hide []string) bool {
	for back := range min(chance, i+1) {
		for _, h := range hide {
			text, h := asciiFold(string(in[i-back:])), asciiFold(h)
			if h != "" && strings.HasPrefix(text, h) || len(text) >= cutText && strings.HasPrefix(h, text) {
				return true
			}
		}
	}
	return false
}

// scrubbed gives a stream to a scrubber in parts of the given sizes, again and
// again.
func scrubbed(in []byte, hide []string, sizes []byte) []byte {
	s := hiding(each(hide), nil)
	var out []byte
	for i, left := 0, in; len(left) > 0; i++ {
		n := min(int(sizes[i%len(sizes)])+1, len(left))
		out = append(out, s.Next(left[:n])...)
		left = left[n:]
	}
	return append(out, s.Rest()...)
}

func TestScrubber(t *testing.T) {
	const key = "sk-12345678"
	for _, c := range []struct {
		in   string
		hide []string
	}{
		{"", []string{key}}, {"nothing", []string{key}}, {key, []string{key}}, {"a" + key + key + "b", []string{key}},
		{"sk-1234567", []string{key}}, {"sk-1234567", []string{key + strings.Repeat("9", 9)}}, {"sk-1234", []string{key}}, {"sk-sk-12345678", []string{key}}, {"sk-1234sk-12345678", []string{key}},
		{"abababab", []string{"abab"}}, {"aaaaaaaaaa", []string{"aaaa"}}, {"xxaabaabaabaax", []string{"aabaabaa"}},
		{"she said hers", []string{"she", "he", "hers"}}, {"xabcdabcdexx", []string{"bcda", "abcde", "cdab"}},
		{"one two and two one", []string{"one two", "two one"}}, {"abcde", []string{"abcd", "bcde"}}, {"is " + key + ".", []string{key, "345"}}, {"sk-12345", []string{"sk-12345678", "5"}}, {"0sk-1sk-1sk-12345678", []string{"sk-1", key, "1sk"}}, {"is SK-12345678.", []string{key}}, {"is sk-AbC.", []string{"SK-aBc"}},
	} {
		for size := range len(c.in) + 1 {
			out := scrubbed([]byte(c.in), c.hide, []byte{byte(size)})
			check(t, []byte(c.in), out, c.hide)
		}
		if whole := hiding(each(c.hide), nil).whole(c.in); whole != string(starred([]byte(c.in), c.hide)) {
			t.Errorf("%q as a whole: %q", c.in, whole)
		}
	}
	for _, nothing := range [][]string{nil, {""}} {
		if s, err := NewSearches().Scrubber("acme", nothing, nil); s != nil || err != nil {
			t.Errorf("nothing to hide makes a scrubber, %v", err)
		}
	}
}

// TestScrubberHoldsLittle: what can't be the beginning of a text goes at once, and
// so do a few bytes that can.
func TestScrubberHoldsLittle(t *testing.T) {
	s := hiding(each([]string{"sk-12345678"}), nil)
	for _, c := range []struct{ part, want string }{
		{"data: x\n\n", "data: x\n\n"}, {"ends like sk-", "ends like sk-"}, {"1", ""}, {"2", ""}, {"x", "12x"},
	} {
		if got := string(s.Next([]byte(c.part))); got != c.want {
			t.Errorf("of %q came %q, want %q", c.part, got, c.want)
		}
	}
}

func TestScrubReader(t *testing.T) {
	const in = "HTTP says sk-12345678 and sk-1234"
	for name, r := range map[string]io.Reader{
		"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in)), "with its end": iotest.DataErrReader(strings.NewReader(in)),
	} {
		got, err := io.ReadAll(hiding(each([]string{"sk-12345678"}), nil).Reader(r))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []byte(in), got, []string{"sk-12345678"})
		if strings.Contains(string(got), "12345678") {
			t.Errorf("%s: %q", name, got)
		}
	}
	_, err := io.ReadAll(hiding(each([]string{"x"}), nil).Reader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab")))))
	if !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("the error is %v", err)
	}
}

func TestScrubHeader(t *testing.T) {
	h := http.Header{"X-Echo": {"a", "Bearer sk-Abcdefgh!"}, "X-Sk-Abcdefgh-Y": {"1"}, "X-%73k%2dabcdefgh": {"1"}, "Other": {"sk-Abcd"}}
	hiding(each([]string{"sk-Abcdefgh"}), nil).Header(h)
	if !slices.Equal(h["X-Echo"], []string{"a", "Bearer ***********!"}) || len(h) != 2 || h.Get("Other") != "sk-Abcd" {
		t.Errorf("%v", h)
	}
	var none *Scrubber
	none.Header(h)
}

// FuzzScrubber: however a stream is split, no text comes through, and nothing else
// changes.
func FuzzScrubber(f *testing.F) {
	f.Add([]byte("a sk-12345678 b"), "sk-12345678", "678 b", []byte{0})
	f.Add([]byte("abababab"), "abab", "baba", []byte{1, 2})
	f.Add([]byte("aaaaaaaaaaaaaaaab"), "aaaaaaab", "aaaaaaaa", []byte{3})
	f.Fuzz(func(t *testing.T, in []byte, a, b string, sizes []byte) {
		if len(sizes) == 0 {
			sizes = []byte{7}
		}
		hide := []string{a, b}
		if a+b == "" {
			return
		}
		if strings.ContainsAny(string(in), `%+\\&-_`) {
			return // it may be read in other spellings, see FuzzSpellings
		}
		check(t, in, scrubbed(in, hide, sizes), hide)
		if got := hiding(each(hide), nil).whole(string(in)); got != string(starred(in, hide)) {
			t.Errorf("as a whole %q, want %q", got, starred(in, hide))
		}
	})
}

// hiding is a scrubber of its own for values in the given forms.
func hiding(hide [][]string, g *Guesses) *Scrubber {
	return newScrubber(newSought(hide), g, func() {})
}

// each has texts hidden that are forms of no other.
func each(texts []string) (hide [][]string) {
	for _, t := range texts {
		hide = append(hide, []string{t})
	}
	return hide
}
