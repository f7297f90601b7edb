package egress

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"agentbox/internal/egress/policy"
)

// Request is a host that a sandbox asked for and was denied: somebody may allow
// it. The sandbox is not told when; it asks again.
type Request struct {
	ID          string // by the target
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
}

// requestID names a target, so that who decides on an id decides on what was seen
// under it, whatever was asked for since.
func requestID(t policy.Target) string {
	sum := sha256.Sum256([]byte(t.String()))
	return "r" + hex.EncodeToString(sum[:8])
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
	a.open = append(a.open, Request{ID: requestID(t), Target: t, First: now, Last: now, Count: 1})
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
