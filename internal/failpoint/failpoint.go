package failpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Variable is the environment variable that arms points: a list of POINT=ACTION,
// separated by commas. An action is kill (SIGKILL to the own process), error, or
// delay:DURATION. Behind it may stand +N, to let the first N passes go by, and then
// *N, to act N times only.
const Variable = "AGENTBOX_FAILPOINTS"

// ErrInjected is what a point that was armed with error fails with.
var ErrInjected = errors.New("it was told to fail here by " + Variable)

// armed is nil while no point is.
var armed atomic.Pointer[map[Point]*trap]

// trap is what an armed point does.
type trap struct {
	kind  string
	delay time.Duration

	mu   sync.Mutex
	skip int // passes that go by
	left int // actions; negative: without end
}

// Arm arms the points that a text in the form of [Variable] names, instead of
// those that were. An empty one arms none.
func Arm(text string) error {
	if text == "" {
		armed.Store(nil)
		return nil
	}
	traps := map[Point]*trap{}
	for part := range strings.SplitSeq(text, ",") {
		name, action, _ := strings.Cut(part, "=")
		p := Point(name)
		if !slices.Contains(All, p) {
			return fmt.Errorf("%s: there is no failpoint %q", Variable, name)
		}
		t, err := parse(action)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", Variable, name, err)
		}
		traps[p] = t
	}
	armed.Store(&traps)
	return nil
}

func parse(action string) (t *trap, err error) {
	t = &trap{left: -1}
	action, times, limited := strings.Cut(action, "*")
	action, skip, skips := strings.Cut(action, "+")
	if limited {
		if t.left, err = strconv.Atoi(times); err != nil || t.left < 1 {
			return nil, fmt.Errorf("%q is no number of times", times)
		}
	}
	if skips {
		if t.skip, err = strconv.Atoi(skip); err != nil || t.skip < 1 {
			return nil, fmt.Errorf("%q is no number of passes", skip)
		}
	}
	t.kind, action, _ = strings.Cut(action, ":")
	switch t.kind {
	case "kill", "error":
		if action != "" {
			return nil, fmt.Errorf("%s takes no value", t.kind)
		}
	case "delay":
		if t.delay, err = time.ParseDuration(action); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%q is neither kill, error nor delay:DURATION", t.kind)
	}
	return t, nil
}

// Hit is called where the point is. It returns [ErrInjected] if that is what the
// point was armed with, and does not return if it was armed with kill.
func (p Point) Hit() error {
	traps := armed.Load()
	if traps == nil {
		return nil
	}
	t := (*traps)[p]
	if t == nil || !t.acts() {
		return nil
	}
	switch t.kind {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing more happens
	case "delay":
		time.Sleep(t.delay)
		return nil
	}
	return fmt.Errorf("%s: %w", p, ErrInjected)
}

// acts counts a pass and reports whether the point does something this time.
func (t *trap) acts() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.skip > 0:
		t.skip--
		return false
	case t.left == 0:
		return false
	case t.left > 0:
		t.left--
	}
	return true
}

// Reader is r, with the point p behind the first part that is read of it.
func (p Point) Reader(r io.Reader) io.Reader {
	if armed.Load() == nil {
		return r
	}
	return &reader{r: r, p: p}
}

type reader struct {
	r    io.Reader
	p    Point
	read bool
}

func (r *reader) Read(b []byte) (int, error) {
	if r.read {
		if err := r.p.Hit(); err != nil {
			return 0, err
		}
	}
	r.read = true
	return r.r.Read(b)
}
