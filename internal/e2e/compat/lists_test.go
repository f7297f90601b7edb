package compat

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseUnits(t *testing.T) {
	units, err := ParseUnits("# a comment\n\ngit ci 60\nlibuv  full 1200\n")
	want := []Unit{{"git", true, time.Minute}, {"libuv", false, 20 * time.Minute}}
	if err != nil || !reflect.DeepEqual(units, want) {
		t.Errorf("got %+v, %v", units, err)
	}
	for _, bad := range []string{"git", "git ci", "git sometimes 1", "git ci soon"} {
		if _, err := ParseUnits(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestParseExpected(t *testing.T) {
	got, err := ParseExpected("# why\nNo such\nthing here:\n  fail a t.x\n  fail b with blanks in it\n\nToo slow:\n  omit a t.y\n")
	want := map[string]Expected{
		"a": {Fail: map[string]string{"t.x": "No such thing here:"}, Omit: []string{"t.y"}},
		"b": {Fail: map[string]string{"with blanks in it": "No such thing here:"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"  fail a b", "Cause:\n  fail a", "Cause:\n  skip a b"} {
		if _, err := ParseExpected(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestJudge(t *testing.T) {
	e := Expected{Fail: map[string]string{"known": "a cause"}}
	for name, c := range map[string]struct {
		report Report
		want   string // "" : all is as expected
	}{
		"as expected":      {Report{Passed: 1, Failed: map[string]string{"known": ""}}, ""},
		"unexpected fail":  {Report{Passed: 1, Failed: map[string]string{"known": "", "new": "why"}}, "new fails"},
		"unexpected pass":  {Report{Passed: 2}, "take it off the list"},
		"nothing was run":  {Report{Failed: map[string]string{"known": ""}}, "no test passed"},
		"no orderly end":   {Report{Passed: 1, Failed: map[string]string{"known": ""}, Error: "timed out"}, "timed out"},
		"end without sign": {Report{Error: "killed"}, "killed"},
	} {
		wrong := strings.Join(c.report.Judge(e), "\n")
		if (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: got %q, want %q", name, wrong, c.want)
		}
	}
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "state"), filepath.Join(dir, "file")
	key := func(text string, words ...string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := Key([]string{file}, words...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := key("a")
	if key("b") == k || key("a", "b") == k || key("a", "b", "c") == key("a", "bc") {
		t.Error("different things have the same key")
	}
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put("unit", k, Report{Passed: 7}); err != nil {
		t.Fatal(err)
	}
	s, err = OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := s.Get("unit", k); !ok || r.Passed != 7 {
		t.Errorf("got %+v, %v", r, ok)
	}
	if _, ok := s.Get("unit", "other"); ok {
		t.Error("a report counts although what it depends on has changed")
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		pattern, test string
		want          bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.bc", false},
		{"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abc", true}, {"a*b*", "a.x.b.y", true},
		{"a*c", "abd", false}, {"b*", "abc", false}, {"a*b*b", "ab", false}, {"ab*ba", "aba", false},
	} {
		if got := fits(c.pattern, c.test); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.test, got)
		}
	}
}
