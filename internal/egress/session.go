package egress

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// SessionOptions of a sandbox.
type SessionOptions struct {
	// Sandbox and Owner are what records say of it.
	Sandbox, Owner string
	// Token is the session that tokens must name, if the sandbox has one. Empty:
	// Sandbox.
	Token  string
	Policy *policy.Policy // nil allows nothing
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
	if o.Token == "" {
		o.Token = o.Sandbox
	}
	s := &Session{o: o, meter: newMeter(o.Limits), flows: make(map[*flow]struct{})}
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
	before := s.policy.Swap(p)
	s.asks.drop(func(t policy.Target) bool { return p.Connect(t).Allow })
	if !cut {
		return
	}
	// A flow is entered here before it is judged, so each one was either judged
	// by the new policy or is found here.
	for f := range s.flows {
		if policy.Cuts(before, p, f.target) {
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

// lineage are the contexts above one that may end with a reason, the nearest
// first. What the end of one of them closes may fail before the end has come down
// to the context of what failed.
type lineage struct {
	ctx   context.Context
	above *lineage
}

type lineageKey struct{}

func lineageOf(ctx context.Context) *lineage {
	l, _ := ctx.Value(lineageKey{}).(*lineage)
	return l
}

func withLineage(ctx context.Context) context.Context {
	return context.WithValue(ctx, lineageKey{}, &lineage{ctx: ctx, above: lineageOf(ctx)})
}

// flow is a connection to a server, or a request, from the verdict to the record.
type flow struct {
	s      *Session
	target policy.Target
	cancel context.CancelCauseFunc
	rec    Record
	above  *lineage
	// quiet: the requests in it have records of their own.
	quiet bool
}

// begin enters a flow; it must end. The context ends when the flow is cut.
func (s *Session) begin(ctx context.Context, kind Kind, t policy.Target) (context.Context, *flow) {
	above := lineageOf(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = withLineage(ctx)
	f := &flow{s: s, target: t, cancel: cancel, above: above, rec: Record{
		Time: time.Now(), Sandbox: s.o.Sandbox, Owner: s.o.Owner, Kind: kind,
		Name: t.Name, Addr: t.Addr, Port: t.Port, Verdict: Allowed,
	}}
	s.mu.Lock()
	s.flows[f] = struct{}{}
	s.mu.Unlock()
	return ctx, f
}

// refuse notes why the flow ends.
func (f *flow) refuse(r *refusal) {
	f.rec.Verdict, f.rec.Code, f.rec.Reason, f.rec.Status = Failed, r.code, clip(r.Error()), r.status
	if r.denied {
		f.rec.Verdict = Denied
	}
	if r.addr.IsValid() {
		f.rec.Addr = r.addr
	}
}

// fail notes what cut off a flow that was on its way. What came first counts:
// one error ends all that the flow is made of, which then fails in other ways.
func (f *flow) fail(ctx context.Context, err error) {
	for a := f.above; a != nil; a = a.above {
		if cause := context.Cause(a.ctx); cause != nil {
			err = cause
		}
	}
	f.cancel(err)
	err = context.Cause(ctx)
	f.rec.Verdict, f.rec.Code, f.rec.Reason = Failed, CodeForward, ""
	for _, known := range []struct {
		err  error
		code Code
	}{{errCut, CodeCut}, {errBytes, CodeBytes}, {errClosed, CodeClosed}, {errIdle, CodeIdle}, {errClient, CodeAborted}} {
		if errors.Is(err, known.err) {
			f.rec.Code, f.rec.Reason = known.code, known.err.Error()
			break
		}
	}
	if f.rec.Reason == "" {
		f.rec.Reason = plain(err)
	}
	if f.rec.Code == CodeCut || f.rec.Code == CodeBytes {
		f.rec.Verdict = Denied
	}
}

// end takes the flow out and records it.
func (f *flow) end(r Recorder) {
	f.s.mu.Lock()
	delete(f.s.flows, f)
	f.s.mu.Unlock()
	f.cancel(nil)
	if f.quiet || r == nil {
		return
	}
	f.rec.Duration = time.Since(f.rec.Time)
	r.Record(f.rec)
}
