package cli

import (
	"testing"
	"time"
)

func TestParseForward(t *testing.T) {
	for in, want := range map[string]forwarded{"8000": {8000, 8000}, "80:8000": {80, 8000}, "0:5432": {0, 5432}} {
		if got, err := parseForward(in); err != nil || got != want {
			t.Errorf("%q is %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "65536", "-1", "80:", ":80", "80:0", "a:b", "1:2:3", "127.0.0.1:80:80", "80/udp"} {
		if got, err := parseForward(in); err == nil {
			t.Errorf("%q is %v", in, got)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"cd /tmp && ls"}, "cd /tmp && ls"},
		{[]string{"echo", "a b", "it's", ""}, `'echo' 'a b' 'it'\''s' ''`},
	} {
		if got := commandLine(c.argv); got != c.want {
			t.Errorf("%q is %q, want %q", c.argv, got, c.want)
		}
	}
}

func TestLabelChanges(t *testing.T) {
	got, err := labelChanges([]string{"a=1", "b=", "old-", "c=x-"})
	if err != nil || len(got) != 4 || *got["a"] != "1" || *got["b"] != "" || got["old"] != nil || *got["c"] != "x-" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "=1", "-"} {
		if got, err := labelChanges([]string{bad}); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"30m": now.Add(-30 * time.Minute), "0s": now, "2026-01-30T10:00:00Z": time.Date(2026, 1, 30, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := parseSince(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "yesterday", "-1h", "12"} {
		if got, err := parseSince(bad, now); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestFileMode(t *testing.T) {
	for _, c := range []struct{ kind, mode, want string }{
		{"file", "0644", "-rw-r--r--"}, {"dir", "1777", "drwxrwxrwt"}, {"file", "4755", "-rwsr-xr-x"}, {"file", "2644", "-rw-r-Sr--"}, {"symlink", "0777", "lrwxrwxrwx"},
	} {
		if got := (&fileRow{Type: c.kind, Mode: c.mode}).mode(); got != c.want {
			t.Errorf("%s %s is %s, want %s", c.kind, c.mode, got, c.want)
		}
	}
}
