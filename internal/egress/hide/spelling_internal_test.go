package hide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

// spelled writes each character of a text in a way of its own.
func spelled(text string, char func(r rune) string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteString(char(r))
	}
	return b.String()
}

// only escapes some characters and leaves the rest.
func only(chars, format string) func(rune) string {
	return func(r rune) string {
		if chars == "" || strings.ContainsRune(chars, r) {
			return fmt.Sprintf(format, r)
		}
		return string(r)
	}
}

// percent is the escape of all bytes but those that are letters, digits or kept.
func percent(kept, format string) func(rune) string {
	return func(r rune) string {
		if strings.ContainsRune(kept, r) || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return string(r)
		}
		return spelledBytes(string(r), format)
	}
}

func spelledBytes(s, format string) (all string) {
	for i := range len(s) {
		all += fmt.Sprintf(format, s[i])
	}
	return all
}

// utf16Escape is what JSON in ASCII has.
func utf16Escape(r rune) (all string) {
	for _, u := range utf16.Encode([]rune{r}) {
		all += fmt.Sprintf("\\u%04x", u)
	}
	return all
}

// TestSpellings: a text is found however an honest server's encoder writes it.
func TestSpellings(t *testing.T) {
	const value = "sk-live/A+b=c d<e>&'f'\"g\"\\h(i)é😀_0123456789=="
	goJSON, _ := json.Marshal(value)
	named := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
	quotes := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for name, in := range map[string]string{
		"itself": value, "Go's JSON": strings.Trim(string(goJSON), `"`),
		"PHP's JSON":    strings.ReplaceAll(quotes.Replace(value), "/", `\/`),
		"Gson":          spelled(quotes.Replace(value), only("<>&='", "\\u%04x")),
		".NET's JSON":   spelled(value, only("<>&'+`\"", "\\u%04X")),
		"Python's JSON": spelled(quotes.Replace(value), func(r rune) string { return map[bool]string{true: utf16Escape(r), false: string(r)}[r > 127] }),
		"all of UTF-16": spelled(value, utf16Escape), "script": spelled(value, func(r rune) string {
			return map[bool]string{true: string(r), false: fmt.Sprintf("\\x%02x", r)}[r > 127 || r == '0']
		}),
		"Go's query": url.QueryEscape(value), "Go's path": url.PathEscape(value), "small": spelled(value, percent("", "%%%02x")), "encodeURIComponent": spelled(value, percent("-_.~!'()*", "%%%02X")),
		"quote": spelled(value, percent("/_.-~", "%%%02X")), "Go's HTML": html.EscapeString(value), "named": named.Replace(value),
		"PHP's HTML": strings.ReplaceAll(named.Replace(value), "'", "&#039;"), "Python's HTML": strings.ReplaceAll(named.Replace(value), "'", "&#x27;"), "XML": strings.ReplaceAll(named.Replace(value), "'", "&apos;"),
		"numbers": spelled(value, only("", "&#%d;")), "hexadecimal": spelled(value, only("", "&#x%X;")), "template": strings.NewReplacer("/", "&#x2F;", "=", "&#x3D;").Replace(named.Replace(value)),
	} {
		for _, size := range []byte{0, 1, 6, 255} {
			out := scrubbed([]byte("<"+in+">&amp; %41\\u00"), []string{"another text", value}, []byte{size})
			// Three characters may be gone before anybody could know.
			if rest := strings.TrimLeft(string(out), `<sk-%\ux&#0123456789abcdefBDX;`); strings.Trim(rest, "*") != ">&amp; %41\\u00" || len(out) != len(in)+15 {
				t.Errorf("%s in parts of %d: %q", name, int(size)+1, out)
			}
		}
	}
}

// FuzzSpellings: whatever comes and however it is split, no text is in what comes out,
// lengths stay, and what changes becomes stars.
func FuzzSpellings(f *testing.F) {
	f.Add([]byte(`a \u0073k-%31 &#x73;k-12345678`), []byte{0})
	f.Add([]byte(`\ud83d\ud83d\ude00&&&amp;%%%41\\\\`), []byte{1, 2})
	f.Add([]byte(`&lt;12345678&lt;12345678`), []byte{3})
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		if len(sizes) == 0 {
			sizes = []byte{7}
		}
		for _, hide := range [][]string{{"sk-12345678", "k-1 2"}, {"<12345678<", "😀&A"}} {
			for _, out := range [][]byte{scrubbed(in, hide, sizes), scrubbed(in, hide, []byte{255}), []byte(hiding(each(hide), nil).whole(string(in)))} {
				if len(out) != len(in) {
					t.Fatalf("%q becomes %q", in, out)
				}
				for i := range out {
					if out[i] != in[i] && out[i] != '*' {
						t.Fatalf("%q becomes %q", in, out)
					}
				}
				for _, h := range hide {
					if bytes.Contains(out, []byte(h)) {
						t.Fatalf("%q becomes %q", in, out)
					}
				}
			}
		}
	})
}
