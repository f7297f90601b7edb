package gvisor

import (
	"os"
	"strings"
	"testing"
)

func TestLogTail(t *testing.T) {
	path := panicLog(t.TempDir())
	if got := logTail(path, 100); got != "" {
		t.Errorf("a log that is not there ends in %q", got)
	}
	for _, c := range []struct{ log, want string }{
		{"", ""},
		{"one\n\ttwo\n\n", "one\n\ttwo"},
		{strings.Repeat("x", 1000) + "end", strings.Repeat("x", 97) + "end"},
		{"\x1b]0;title\a\x1b[2J\r\xff\u202e\u009b9999999m", "?]0;title??[2J????9999999m"},
	} {
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := logTail(path, 100); got != c.want {
			t.Errorf("the log %q ends in %q, not in %q", c.log, got, c.want)
		}
	}
}
