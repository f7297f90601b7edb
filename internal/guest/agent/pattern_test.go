package agent

import (
	"context"
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern string
		match   string // separated by blanks
		not     string
	}{
		{"*.go", "a.go .go é.go", "a.gox d/a.go"},
		{"?", "a é /", "ab"},
		{"**/*.go", "a.go d/a.go d/e/a.go .d/a.go", "a.c d/a.go/x"},
		{"d/**", "d/a d/e/f", "d e/d/a"},
		{"d/**/f", "d/f d/e/f d/e/e/f", "f d/ef"},
		{"**", "a a/b", ""},
		{"a**b", "ab axb", "a/b"},
		{"[a-cx].h", "a.h c.h x.h", "d.h ab.h"},
		{"[!a-c]", "d é", "a /"},
		{"[]]", "]", "a"},
		{`[\]-]`, "] -", `\`},
		{"{a,b/*,{c,d}.x}", "a b/z c.x d.x", "b c a,b"},
		{"{**/x,y}", "x a/x y", "a/y"},
		{`\*\{`, "*{", "a{"},
		{"a,b}", "a,b}", "a"},
		{"./a", "a", "./a"},
		{"(a|b)+$", "(a|b)+$", "a"},
		{"\u65e5*", "\u65e5\u672c", "\u672c"},
	} {
		gs, err := parseGlobs("patterns", []string{c.pattern}, false)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, name := range strings.Fields(c.match) {
			if name != "/" && !gs.match(t.Context(), name) {
				t.Errorf("%q does not match %q", c.pattern, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if gs.match(t.Context(), name) {
				t.Errorf("%q matches %q", c.pattern, name)
			}
		}
	}
	for _, bad := range []string{"", "/a", "[", "[a", "[a-", "[!", "{", "{a,{b}", `\`, "[z-a]", "[+-9]", "\xff", strings.Repeat("a", 2000)} {
		if _, err := parseGlobs("patterns", []string{bad}, false); err == nil {
			t.Errorf("%.20q was taken", bad)
		}
	}
	if gs, _ := parseGlobs("x", []string{"*.go", "a/b"}, true); !gs.match(t.Context(), "d/x.go") || !gs.match(t.Context(), "a/b") || gs.match(t.Context(), "c/a/b") {
		t.Error("a pattern without a slash is one of names, another one of paths")
	}
}

// Not UTF-8 names are matched byte by byte.
func TestGlobBytes(t *testing.T) {
	gs, err := parseGlobs("x", []string{"a?b*"}, false)
	if err != nil || !gs.match(t.Context(), "a\xffb\xfe\xfd") || gs.match(t.Context(), "a\xff\xffb") {
		t.Errorf("got %v", err)
	}
}

// FuzzGlob: no pattern makes an expression that can't be compiled, or one that
// matches across a slash where only names may be.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"**/*.{go,c}", "[!a-z]?", `\[`, "{a,{b,c}}", "[^]]", "a/**"} {
		f.Add(s, "d/a.go")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		gs, err := parseGlobs("x", []string{pattern}, false)
		if err != nil {
			return
		}
		if gs.match(t.Context(), name) && gs.depth() > 0 && strings.Count(name, "/") >= gs.depth() {
			t.Errorf("%q matches %q, which is deeper", pattern, name)
		}
	})
}

// A call that has run out of time does not go on through all patterns.
func TestMatchEnds(t *testing.T) {
	gs, err := parseGlobs("x", []string{"**"}, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if !gs.match(ctx, "a") {
		t.Error("** matches nothing")
	}
	cancel()
	if gs.match(ctx, "a") {
		t.Error("a pattern was tried after the end")
	}
}
