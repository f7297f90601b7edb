package cli

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Names, settings of images and messages may be anybody's. What a terminal would
// obey in them is shown in the spelling of Go; lines may end.

// plain is text for a terminal.
func plain(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !obeyed(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// obeyed reports whether a terminal may do something else with r than show it.
func obeyed(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// plainJSON is encoded JSON for a terminal: encoding/json leaves DEL, the C1
// controls and marks of writing direction as they are. They stand in strings only,
// where an escape means the same.
func plainJSON(b []byte) string {
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case !obeyed(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			out.WriteString(`\u` + strconv.FormatInt(int64(hi), 16) + `\u` + strconv.FormatInt(int64(lo), 16))
		default:
			h := strconv.FormatInt(int64(r), 16)
			out.WriteString(`\u` + strings.Repeat("0", 4-len(h)) + h)
		}
	}
	return out.String()
}

// json encodes to standard output, a line or more for each value.
func (a *App) json() *json.Encoder { return json.NewEncoder(textWriter{a.Stdout, plainJSON}) }

// table lines up cells that tabs separate. They are plain.
func (a *App) table() *tabwriter.Writer {
	return tabwriter.NewWriter(textWriter{a.Stdout, func(b []byte) string { return plain(string(b)) }}, 0, 0, 3, ' ', 0)
}

// textWriter takes whole pieces of text, as encoders and tables write them.
type textWriter struct {
	w     io.Writer
	plain func([]byte) string
}

func (t textWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(t.w, t.plain(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
