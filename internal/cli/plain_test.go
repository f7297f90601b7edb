package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// hostile is text that a terminal would obey: titles, colours, C1 controls, marks
// of direction, invalid bytes.
const hostile = "a\x1b]0;title\x07\x1b[31m\u009b31m\x7f\u202eb\U000e0001\r\xffé\tz"

func TestPlain(t *testing.T) {
	for _, s := range []string{plain(hostile), plainJSON([]byte(hostile))} {
		if i := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q has %q", s, s[i:])
		}
		if !strings.Contains(s, "é") {
			t.Errorf("%q lost what is harmless", s)
		}
	}
	if s := "two\nlines, ünïcode"; plain(s) != s {
		t.Errorf("%q became %q", s, plain(s))
	}
}

// What is printed as JSON means what it meant.
func TestPlainJSON(t *testing.T) {
	var out bytes.Buffer
	a := &App{Stdout: &out}
	want := map[string]string{"k\u009b": strings.ToValidUTF8(hostile, "\uFFFD")}
	if err := a.printJSON(want); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if strings.ContainsFunc(out.String(), obeyed) {
		t.Errorf("printed %q", out.String())
	}
}

// Nothing that comes from elsewhere reaches the terminal as it is, in a table, a
// warning or an error.
func TestPlainOutput(t *testing.T) {
	var out, errs bytes.Buffer
	a := &App{Stdout: &out, Stderr: &errs}
	w := a.table()
	fmt.Fprintf(w, "NAME\tIMAGE\n%s\t%s\n", strings.ReplaceAll(hostile, "\t", ""), "\u009b2J")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	a.warn(errors.New(hostile))
	if code := a.Main(t.Context(), []string{"run", hostile + "\x1b"}); code != ExitFailure {
		t.Errorf("exit status %d", code)
	}
	for _, s := range []string{out.String(), errs.String()} {
		if s == "" || strings.ContainsFunc(s, obeyed) {
			t.Errorf("printed %q", s)
		}
	}
}
