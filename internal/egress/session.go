package egress

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"agentbox/internal/egress/hide"
	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// SessionOptions of a sandbox.
type SessionOptions struct {
	// Sandbox and Owner are what records say of it. Sandbox, which is unique, is
	// also what its tokens name.
	Sandbox, Owner string
	Policy         *policy.Policy // nil allows nothing
	// Secrets that may be put into its requests.
	Secrets []sandbox.SecretUse
	Limits  Limits
}

// Session is what the proxy knows of one live sandbox: its policy, which may
// change, and its connections. Any number of goroutines may use it.
type Session struct {
	o      SessionOptions
	policy atomic.Pointer[policy.Policy]
	meter  *meter
	asks   asks
	// guesses at its secrets.
	guesses *hide.Guesses
	// refusals slows down who asks for what is not allowed, or not there.
	refusals *rate.Limiter

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	conns   int // served
	refused int // beyond the limit, about to be told
	flows   map[*flow]struct{}
}

var (
	errClosed = errors.New("the sandbox ends")
	errCut    = errors.New("the policy changed")
)

// NewSession begins one. It must be closed.
func NewSession(o SessionOptions) *Session {
	if o.Limits.Conns <= 0 {
		o.Limits.Conns = DefaultConns
	}
	s := &Session{o: o, meter: newMeter(o.Limits), guesses: hide.NewGuesses(), refusals: rate.NewLimiter(refusals, refusalsBurst), flows: make(map[*flow]struct{})}
	s.policy.Store(o.Policy)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Sandbox is the one of SessionOptions.
func (s *Session) Sandbox() string { return s.o.Sandbox }

// Owner is the one of SessionOptions.
func (s *Session) Owner() string { return s.o.Owner }

// Secrets are those of SessionOptions; they must not be changed.
func (s *Session) Secrets() []sandbox.SecretUse { return s.o.Secrets }

// Policy is the one in force.
func (s *Session) Policy() *policy.Policy { return s.policy.Load() }

// SetPolicy puts another policy in force, at once for everything new: also for
// the next request on an open connection. With cut, connections and requests that
// it does not allow any more end, with a reset. Requests for hosts that it allows
// are pending no longer.
func (s *Session) SetPolicy(p *policy.Policy, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy.Store(p)
	s.asks.drop(func(t policy.Target) bool { return p.Connect(t).Allow })
	if !cut {
		return
	}
	// A flow is entered here before it is judged, so each one was either judged
	// by the new policy or is found here.
	for f := range s.flows {
		if !f.holds(p) {
			f.cancel(errCut)
		}
	}
}

// Close ends all connections and waits until they have ended and are recorded.
// The session serves no new ones.
func (s *Session) Close() {
	s.End()
	s.tasks.Wait()
}

// End is Close for those who can't wait: a client that takes nothing holds its
// connection until its own end of it is closed.
func (s *Session) End() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errClosed)
}

// Live reports whether the session was not closed.
func (s *Session) Live() bool { return s.ctx.Err() == nil }

// Requests are what was denied and not decided since, the oldest first.
func (s *Session) Requests() []Request { return s.asks.list() }

// Dismiss takes a request off the list, such as when it was decided. It reports
// whether it was there.
func (s *Session) Dismiss(id string) bool { return s.asks.dismiss(id) }

// enter counts a connection in. full: it is one too many and to be told so.
// Without ok it is to be closed.
func (s *Session) enter() (leave func(), full, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := &s.conns
	switch {
	case s.closed:
		return nil, false, false
	case s.conns >= s.o.Limits.Conns && s.refused >= maxRefused:
		return nil, false, false
	case s.conns >= s.o.Limits.Conns:
		place, full = &s.refused, true
	}
	*place++
	s.tasks.Add(1)
	return func() {
		s.mu.Lock()
		*place--
		s.mu.Unlock()
		s.tasks.Done()
	}, full, true
}
