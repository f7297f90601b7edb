package image

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Event tells how far a long operation is.
type Event struct {
	// Phase in a word or two: "download", "read", "load", "install", "pack",
	// "wait".
	Phase string `json:"phase"`
	// Percent of the whole that is done, 0 to 100; -1 when nobody knows.
	Percent int `json:"percent"`
	// Line says what is done right now.
	Line string `json:"line"`
	// Layer, Done and Total are of the layer that a download's event is about:
	// its digest, and bytes.
	Layer string `json:"layer,omitempty"`
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
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

// progress makes events of what mmdebstrap and apt print. apt installs twice:
// the essential packages, then the rest.
type progress struct {
	report     func(Event)
	base, span int // percent where this run of apt begins, and how many it takes
	want       int // packages of the run
	got        int // downloaded
	unpacked   int
	done       int // set up
	percent    int
}

// What the parts take of the whole, in percent, as measured.
const (
	essentialUntil = 25
	installUntil   = 85
	packFrom       = 88
)

// newlyInstalled finds the number of packages in apt's summary, old and new.
var newlyInstalled = regexp.MustCompile(`(\d+) newly installed|Installing: (\d+)`)

// line takes one line of output.
func (p *progress) line(s string) {
	s = strings.TrimSpace(s)
	phase := "install"
	switch {
	case strings.HasPrefix(s, "I: "):
		s = strings.TrimSuffix(s[len("I: "):], "...")
		phase = p.step(s, phase)
	case strings.HasPrefix(s, "Get:"):
		phase = "download"
		p.got++
	case strings.HasPrefix(s, "Unpacking "):
		p.unpacked++
	case strings.HasPrefix(s, "Setting up "):
		p.done++
	case strings.HasPrefix(s, "W: "), strings.HasPrefix(s, "E: "):
	default:
		if m := newlyInstalled.FindStringSubmatch(s); m != nil {
			p.want, _ = strconv.Atoi(m[1] + m[2]) // too big a number is MaxInt, and no progress
		}
		return
	}
	if p.want > 0 {
		part := min(1, float64(p.got+2*p.unpacked+2*p.done)/(5*float64(p.want)))
		p.percent = max(p.percent, p.base+int(part*float64(p.span)))
	}
	p.report(Event{Phase: phase, Percent: p.percent, Line: shorten(s)})
}

// step takes a message of mmdebstrap itself.
func (p *progress) step(s, phase string) string {
	switch {
	case strings.HasPrefix(s, "running apt-get update"):
		p.span = essentialUntil
	case strings.HasPrefix(s, "installing remaining packages"):
		*p = progress{report: p.report, base: essentialUntil, span: installUntil - essentialUntil, percent: max(p.percent, essentialUntil)}
	case strings.HasPrefix(s, "creating tarball"):
		p.percent = packFrom
		return "pack"
	}
	return phase
}

// shorten makes a line fit for a terminal.
func shorten(s string) string {
	const longest = 120
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "")
	}
	return s
}
