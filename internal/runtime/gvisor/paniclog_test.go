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
