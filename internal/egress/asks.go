package egress

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"agentbox/internal/egress/policy"
)

// Request is a host that a sandbox asked for and was denied: somebody may allow
// it. The sandbox is not told when; it asks again.
type Request struct {
	ID          string // unique in its session
	Target      policy.Target
	First, Last time.Time
	Count       int
}

// maxAsks bounds the requests of a session. A sandbox that asks for more keeps
// the first ones: else it could push out what somebody is about to decide.
const maxAsks = 64

type asks struct {
	mu   sync.Mutex
	open []Request
	last int
}

// add notes that a target was denied.
func (a *asks) add(t policy.Target) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.open, func(r Request) bool { return r.Target == t }); i >= 0 {
		a.open[i].Last = now
		a.open[i].Count++
		return
	}
	if len(a.open) >= maxAsks {
		return
	}
	a.last++
	a.open = append(a.open, Request{ID: fmt.Sprintf("r%d", a.last), Target: t, First: now, Last: now, Count: 1})
}

func (a *asks) list() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.open)
}

func (a *asks) dismiss(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.open)
	a.open = slices.DeleteFunc(a.open, func(r Request) bool { return r.ID == id })
	return len(a.open) < n
}

// drop removes what is decided.
func (a *asks) drop(decided func(policy.Target) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = slices.DeleteFunc(a.open, func(r Request) bool { return decided(r.Target) })
}
