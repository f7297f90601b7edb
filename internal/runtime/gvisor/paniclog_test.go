package gvisor

import (
	"os"
	"strings"
	"testing"
)

func TestLogEnds(t *testing.T) {
	path := panicLog(t.TempDir())
	if got := logEnds(path, 100); got != "" {
		t.Errorf("a log that is not there says %q", got)
	}
	for _, c := range []struct{ log, want string }{
		{"", ""},
		{"one\n\ttwo\n\n", "one\n\ttwo"},
		{"cause" + strings.Repeat("x", 1000) + "end", "cause" + strings.Repeat("x", 45) + "\n[...]\n" + strings.Repeat("x", 47) + "end"},
		{strings.Repeat("x", 100), strings.Repeat("x", 100)},
		{"\x1b]0;title\a\x1b[2J\r\xff\u202e\u009b9999999m", "?]0;title??[2J????9999999m"},
	} {
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := logEnds(path, 100); got != c.want {
			t.Errorf("of the log %q: %q, want %q", c.log, got, c.want)
		}
	}
}

// Only what the engine writes last says that the first process ended.
func TestExitNote(t *testing.T) {
	path := panicLog(t.TempDir())
	if _, ended := exitNote(path); ended {
		t.Error("a log that is not there says that it ended")
	}
	for log, want := range map[string]int{
		"":                                  -1,
		"\n" + endNote + "0\n":              0,
		"panic: x\n\n" + endNote + "137\n":  137,
		"\n" + endNote + "1\nfatal error\n": -1,
		"\n" + endNote + "\n":               -1,
		"x " + endNote + "1\n":              -1,
		strings.Repeat("x\n", 1<<20) + endNote + "3\n": 3,
	} {
		if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		code, ended := exitNote(path)
		if ended != (want >= 0) || ended && code != want {
			t.Errorf("of a log that ends %q: %d, %v; want %d", log[max(0, len(log)-80):], code, ended, want)
		}
	}
}
