package compat

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unit is one test suite.
type Unit struct {
	Name string
	// CI units run in every test run, the others in the full one only.
	CI bool
	// Limit is how long it may take on a busy machine.
	Limit time.Duration
}

// ParseUnits reads lines of "NAME ci|full SECONDS"; "#" begins a comment.
func ParseUnits(text string) ([]Unit, error) {
	var units []Unit
	for n, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 3 || f[1] != "ci" && f[1] != "full" {
			return nil, fmt.Errorf("line %d is not NAME ci|full SECONDS: %q", n+1, line)
		}
		seconds, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		units = append(units, Unit{Name: f[0], CI: f[1] == "ci", Limit: time.Duration(seconds) * time.Second})
	}
	return units, nil
}

// Expected is what is known of one unit's tests.
type Expected struct {
	// Fail maps tests that fail, or patterns of such, to the cause.
	Fail map[string]string
	// Omit names tests that are not run at all.
	Omit []string
}

// ParseExpected reads causes, each followed by the tests that fail for it:
//
//	Words that tell the cause, on lines that begin in the first column.
//	  fail UNIT TEST
//	  omit UNIT TEST
//
// A "*" in the TEST of a fail line stands for any text: at least one test that
// it fits must fail.
// "#" in the first column begins a comment.
func ParseExpected(text string) (map[string]Expected, error) {
	all := map[string]Expected{}
	cause, inCause := "", false
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
			continue
		case line[0] != ' ':
			if !inCause {
				cause = ""
			}
			cause = strings.TrimSpace(cause + " " + line)
			inCause = true
			continue
		}
		inCause = false
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit, test, ok := strings.Cut(strings.TrimSpace(rest), " ")
		test = strings.TrimSpace(test)
		if !ok || cause == "" {
			return nil, fmt.Errorf("line %d has no unit, no test or no cause: %q", n+1, line)
		}
		e := all[unit]
		if e.Fail == nil {
			e.Fail = map[string]string{}
		}
		switch verb {
		case "fail":
			e.Fail[test] = cause
		case "omit":
			e.Omit = append(e.Omit, test)
		default:
			return nil, fmt.Errorf("line %d begins with %q, neither fail nor omit", n+1, verb)
		}
		all[unit] = e
	}
	return all, nil
}

// Report is what the driver in the sandbox tells of a unit.
type Report struct {
	Passed  int               `json:"passed"`
	Skipped int               `json:"skipped"`
	Failed  map[string]string `json:"failed"` // test → its last words
	Error   string            `json:"error"`  // the suite did not come to its end
	Seconds float64           `json:"seconds"`
	Log     string            `json:"log,omitempty"`
}

// Judge returns what is not as expected, one line for each.
func (r Report) Judge(e Expected) []string {
	var wrong []string
	if r.Error != "" {
		wrong = append(wrong, fmt.Sprintf("the suite did not end: %s\n%s", r.Error, r.Log))
		return wrong
	}
	if r.Passed == 0 {
		wrong = append(wrong, "no test passed")
	}
	for test, words := range r.Failed {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(e.Fail)), func(p string) bool { return fits(p, test) }) {
			wrong = append(wrong, fmt.Sprintf("%s fails:\n%s", test, words))
		}
	}
	for test, cause := range e.Fail {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.Failed)), func(t string) bool { return fits(test, t) }) {
			wrong = append(wrong, fmt.Sprintf("%s is expected to fail (%s) and did not: take it off the list", test, cause))
		}
	}
	return wrong
}

// fits reports whether test is what pattern says, in which "*" stands for any
// text.
func fits(pattern, test string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == test
	}
	rest, ok := strings.CutPrefix(test, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}
