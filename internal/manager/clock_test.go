package manager

import (
	"strings"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// Deadlines of a daemon that runs are by the monotonic clock, which nobody can set:
// each of the times that are compared carries its reading.
func TestDeadlinesAreMonotonic(t *testing.T) {
	b := newBox(sandbox.Sandbox{
		Status: sandbox.Live, Expires: time.Now().Round(0).Add(time.Hour), Lifetime: time.Hour, IdleTimeout: time.Minute, LastActivity: time.Now().Round(0),
	})
	b.arm()
	check := func(what string, at time.Time) {
		t.Helper()
		if !strings.Contains(at.String(), " m=") {
			t.Errorf("%s has no reading of the monotonic clock: %v", what, at)
		}
	}
	check("now", now())
	check("the end of life", b.expires)
	check("the last use that was read", b.used)
	b.begun()
	check("the last use", b.used)
	b.again()
	check("the next removal", b.retry)
	if act, left := b.due(now()); act != nil || left <= 0 || left > flushEvery {
		t.Errorf("a fresh one is due in %v", left)
	}
}
