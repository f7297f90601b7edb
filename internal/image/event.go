package image

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Event tells how far a long operation is.
type Event struct {
	// Phase in a word or two: "download", "install", "pack", "wait".
	Phase string `json:"phase"`
	// Percent of the whole that is done, 0 to 100; -1 when nobody knows.
	Percent int `json:"percent"`
	// Line says what is done right now.
	Line string `json:"line"`
}

// String is the event as one line of text.
func (e Event) String() string {
	s := e.Phase
	if e.Percent >= 0 {
		s = fmt.Sprintf("%s %d%%", s, e.Percent)
	}
	if e.Line != "" {
		s += ": " + e.Line
	}
	return s
}

// progress makes events of what mmdebstrap and apt print. apt installs in
// several runs (the essential packages, then the rest), so the percentage is an
// estimate that never goes back.
type progress struct {
	report  func(Event)
	want    int // packages of the recipe, at least
	got     int // packages downloaded
	done    int // packages set up
	percent int
}

var newlyInstalled = regexp.MustCompile(`(\d+) newly installed`)

// line takes one line of output.
func (p *progress) line(s string) {
	s = strings.TrimSpace(s)
	phase := "install"
	switch {
	case s == "":
		return
	case strings.HasPrefix(s, "I: "):
		s = strings.TrimSuffix(s[len("I: "):], "...")
		if strings.HasPrefix(s, "creating tarball") {
			phase, p.percent = "pack", 90
		}
	case strings.HasPrefix(s, "Get:"):
		phase = "download"
		p.got++
	case strings.HasPrefix(s, "Setting up "):
		p.done++
	case strings.HasPrefix(s, "Unpacking "), strings.HasPrefix(s, "W: "), strings.HasPrefix(s, "E: "):
	default:
		if m := newlyInstalled.FindStringSubmatch(s); m != nil {
			n, _ := strconv.Atoi(m[1]) // at most: too big, and then MaxInt
			p.want = max(p.want, min(n, 1<<20))
		}
		return
	}
	if p.want > 0 {
		p.percent = max(p.percent, min(89, (30*p.got+60*p.done)/p.want))
	}
	const longest = 120
	if len(s) > longest {
		s = s[:longest]
	}
	p.report(Event{Phase: phase, Percent: p.percent, Line: s})
}
