package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// What a sandbox calls things reaches no terminal.
func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain":              "plain",
		"größe 日本":           "größe 日本",
		"\x1b[31mred\x1b[0m": `\x1b[31mred\x1b[0m`,
		"a\tb\nc\rd":         `a\tb\nc\rd`,
		"bell\a del\x7f":     `bell\a del\x7f`,
		"csi \u009b31m":      `csi \u009b31m`,
		"rtl \u202egnp.exe":  `rtl \u202egnp.exe`,
		"bad \xff\xc3":       `bad \xff\xc3`,
		"\ufffd":             "\ufffd",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	if got := visibleLines("a\x1b\nb\a"); got != "a\\x1b\nb\\a" {
		t.Errorf("lines are shown as %q", got)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b]0;title\a")
	f.Add("\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%q is shown with %q", s, r)
			}
		}
		if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 && got != s {
			t.Errorf("%q is shown as %q", s, got)
		}
	})
}

// JSON for programs means the same, and does nothing to a terminal.
func FuzzHarmless(f *testing.F) {
	f.Add("\u009b31m \u202e \U000e0001 \x7f")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		got := harmless(text)
		if i := bytes.IndexFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q has something at %d", got, i)
		}
		var before, after map[string]string
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(got, &after) != nil {
			t.Fatalf("%q became %q", text, got)
		}
		for k, v := range before {
			if after[k] != v {
				t.Errorf("%q became %q", before, after)
			}
		}
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1250 * time.Millisecond: "1.3s", 59 * time.Second: "59s", 119 * time.Second: "119s", 2 * time.Minute: "2m",
		time.Hour: "1h", 200 * time.Minute: "3h20m", 30 * time.Hour: "30h", 72 * time.Hour: "3d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 10 << 10: "10K", 512 << 20: "512M", 1<<30 - 1: "1.0G", 4 << 30: "4.0G", 1 << 62: "4.0E",
	} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// What a warning or an error quotes, such as a name in an archive, reaches no
// terminal as it is.
func TestMessagesAreVisible(t *testing.T) {
	const hostile = "a\x1b]0;title\x07\x1b[31m\u009b31m\x7f\u202eb\r"
	var errs bytes.Buffer
	a := &App{Stdout: &errs, Stderr: &errs}
	a.warn(errors.New(hostile))
	if code := a.Main(t.Context(), []string{"run", hostile}); code != ExitFailure {
		t.Errorf("exit status %d", code)
	}
	if s := errs.String(); !strings.Contains(s, `\x1b]0;title`) || strings.ContainsFunc(s, acts) {
		t.Errorf("printed %q", s)
	}
}
