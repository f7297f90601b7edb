package cli

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// table is a list for people. What its cells say may come from inside a sandbox
// and can't act on the terminal.
type table struct {
	w *tabwriter.Writer
}

func (a *App) table(headers ...string) *table {
	t := &table{tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(headers, "\t"))
	return t
}

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = visible(cells[i])
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// visible shows what a terminal would act on as an escape: control characters,
// those that turn the direction of text, and bytes that are no UTF-8.
func visible(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// visibleLines does it for a text of several lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// span is a time for people, by its largest units: 45s, 12m, 3h20m, 5d.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return strconv.FormatFloat(float64(d.Round(100*time.Millisecond))/float64(time.Second), 'f', -1, 64) + "s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 10*time.Hour && d%time.Hour >= time.Minute:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

// ago is how long something is past.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t)) + " ago"
}

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, units := float64(n), "KMGTPE"
	for f /= 1024; f >= 1023.95 && len(units) > 1; f /= 1024 {
		units = units[1:]
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f%c", f, units[0])
	}
	return fmt.Sprintf("%.0f%c", f, units[0])
}
