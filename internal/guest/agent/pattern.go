package agent

import (
	"context"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// Bounds of patterns, so that one can't take the agent's time: a name is matched
// in a time that is linear in its length and the pattern's, a line of a search in
// its length times maxProgram.
const (
	maxPatterns = 100
	maxPattern  = 1 << 10 // bytes
	maxProgram  = 5_000   // instructions of an expression
)

// globs match paths below a directory.
type globs []glob

type glob struct {
	re   *regexp.Regexp
	name bool // of the last element alone
	// depth is how many elements a path can have that matches; 0: any number.
	depth int
}

// parseGlobs reads patterns. With names a pattern without "/" is one of names.
func parseGlobs(field string, patterns []string, names bool) (globs, error) {
	if len(patterns) > maxPatterns {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "%s: more than %d patterns", field, maxPatterns)
	}
	var gs globs
	for _, p := range patterns {
		expr, err := globExpr(p)
		if err == nil {
			err = checkExpr(expr)
		}
		if err != nil {
			return nil, guest.Errorf(errdefs.ErrInvalidArgument, "%s: pattern %.100q: %v", field, p, err)
		}
		g := glob{re: regexp.MustCompile(expr), name: names && !strings.Contains(p, "/")}
		if !strings.Contains(p, "**") && !g.name {
			g.depth = strings.Count(p, "/") + 1
		}
		gs = append(gs, g)
	}
	return gs, nil
}

// match tells whether a pattern matches; nothing does when ctx has ended. To match
// the longest path takes one pattern some tenths of a second, and there may be
// maxPatterns.
func (gs globs) match(ctx context.Context, rel string) bool {
	name := rel[strings.LastIndexByte(rel, '/')+1:]
	for _, g := range gs {
		if ctx.Err() != nil {
			return false
		}
		if g.name && g.re.MatchString(name) || !g.name && g.re.MatchString(rel) {
			return true
		}
	}
	return false
}

// depth is how deep paths can be that match; 0: no bound.
func (gs globs) depth() int {
	most := 0
	for _, g := range gs {
		if g.depth == 0 {
			return 0
		}
		most = max(most, g.depth)
	}
	return most
}

// checkExpr refuses an expression that would be slow.
func checkExpr(expr string) error {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return err
	}
	if len(prog.Inst) > maxProgram {
		return guest.Errorf(errdefs.ErrInvalidArgument, "the pattern is too complex")
	}
	return nil
}

// globExpr is a pattern as an expression of RE2, which never backtracks.
func globExpr(p string) (string, error) {
	bad := func(why string) error { return guest.Errorf(errdefs.ErrInvalidArgument, "%s", why) }
	p = strings.TrimPrefix(p, "./")
	switch {
	case p == "":
		return "", bad("it is empty")
	case len(p) > maxPattern:
		return "", bad("it is too long")
	case !utf8.ValidString(p):
		return "", bad("it is not UTF-8")
	case p[0] == '/':
		return "", bad("it must be relative to the directory")
	}
	t := globParser{rest: p}
	t.out.WriteString(`(?s)\A(?:`)
	for t.rest != "" {
		if why := t.next(); why != "" {
			return "", bad(why)
		}
	}
	if t.braces > 0 {
		return "", bad("a { is not closed")
	}
	t.out.WriteString(`)\z`)
	return t.out.String(), nil
}

type globParser struct {
	rest   string
	last   rune // that was taken; 0 at the beginning
	braces int
	out    strings.Builder
}

// next translates one part of the pattern and tells what is wrong with it.
func (t *globParser) next() (why string) {
	r, n := utf8.DecodeRuneInString(t.rest)
	begins := t.last == 0 || t.last == '/' || t.braces > 0 && (t.last == '{' || t.last == ',')
	t.rest, t.last = t.rest[n:], r
	switch {
	case r == '*' && strings.HasPrefix(t.rest, "*"):
		t.stars(begins)
	case r == '*':
		t.out.WriteString(`[^/]*`)
	case r == '?':
		t.out.WriteString(`[^/]`)
	case r == '[':
		return t.class()
	case r == '{':
		t.braces++
		t.out.WriteString(`(?:`)
	case r == '}' && t.braces > 0:
		t.braces--
		t.out.WriteString(`)`)
	case r == ',' && t.braces > 0:
		t.out.WriteString(`|`)
	case r == '\\':
		r, n := utf8.DecodeRuneInString(t.rest)
		if n == 0 {
			return `it ends in \`
		}
		t.rest = t.rest[n:]
		t.out.WriteString(regexp.QuoteMeta(string(r)))
	default:
		t.out.WriteString(regexp.QuoteMeta(string(r)))
	}
	return ""
}

// stars translates "**", of which one star was taken: as an element of its own it
// is any number of directories, else it is "*".
func (t *globParser) stars(begins bool) {
	t.rest = strings.TrimLeft(t.rest, "*")
	switch {
	case begins && strings.HasPrefix(t.rest, "/"):
		t.rest, t.last = t.rest[1:], '/'
		t.out.WriteString(`(?:.*/)?`)
	case begins && (t.rest == "" || t.braces > 0 && strings.ContainsAny(t.rest[:1], ",}")):
		t.out.WriteString(`.+`)
	default:
		t.out.WriteString(`[^/]*`)
	}
}

// class translates [a-z] and [!a-z], whose "[" was taken. It never matches "/".
func (t *globParser) class() (why string) {
	const open = "a [ is not closed"
	negated := strings.HasPrefix(t.rest, "!") || strings.HasPrefix(t.rest, "^")
	if negated {
		t.rest = t.rest[1:]
		t.out.WriteString(`[^/`)
	} else {
		t.out.WriteString(`[`)
	}
	for first := true; ; first = false {
		if strings.HasPrefix(t.rest, "]") && !first {
			t.rest, t.last = t.rest[1:], ']'
			t.out.WriteString(`]`)
			return ""
		}
		lo, ok := t.classRune()
		if !ok {
			return open
		}
		hi := lo
		if len(t.rest) > 1 && t.rest[0] == '-' && t.rest[1] != ']' {
			t.rest = t.rest[1:]
			if hi, ok = t.classRune(); !ok {
				return open
			}
		}
		if lo > hi {
			return "a range in [] ends before it begins"
		}
		if !negated && lo <= '/' && '/' <= hi {
			return "[] can't match a slash"
		}
		t.out.WriteString(classQuote(lo) + "-" + classQuote(hi))
	}
}

func (t *globParser) classRune() (rune, bool) {
	t.rest = strings.TrimPrefix(t.rest, `\`)
	r, n := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[n:]
	return r, n > 0
}

// classQuote is a rune in a class of an expression.
func classQuote(r rune) string {
	if strings.ContainsRune(`\]^-[&~:`, r) {
		return `\` + string(r)
	}
	return string(r)
}
