package egress

import (
	"context"
	"errors"
	"time"

	"agentbox/internal/egress/policy"
)

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
	quiet  bool
	judged judged // under s.mu
	watch  *openWatch
}

// judged is by what a flow was allowed, beside its target: what a new policy must
// allow, too, if the flow is not to be cut.
type judged struct {
	// seen: it is a connection whose requests are judged one by one.
	seen bool
	// closed: it is TLS that is passed on as it is, or is about to be.
	closed bool
	// named is the host that was named to an address; its Name may be empty.
	named policy.Target
	// Of a request; method is empty otherwise.
	scheme, method, path string
}

// note keeps by what the flow is allowed.
func (f *flow) note(change func(*judged)) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	change(&f.judged)
}

// requestsSeen notes that the requests in a connection are judged and recorded one
// by one.
func (f *flow) requestsSeen() {
	f.watch.stop()
	f.note(func(j *judged) { j.seen = true })
}

// holds reports whether a policy allows the flow as it is. The caller holds s.mu.
func (f *flow) holds(p *policy.Policy) bool {
	v, by := p.Connect(f.target), &f.judged
	switch {
	case !v.Allow, by.named.Name != "" && !mayName(p, by.named):
		return false
	case by.closed && (p.Intercept(f.target) || by.named.Name != "" && p.Intercept(by.named)):
		return false
	case by.method != "":
		return p.Request(f.target, by.scheme, by.method, by.path).Allow
	}
	return !v.SeeRequest || by.seen
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

// refuse notes why the flow ends. Who is refused often waits here for the answer,
// also where the server can't be reached: to find that out costs the name server,
// too.
func (f *flow) refuse(r *refusal) {
	_ = f.s.refusals.Wait(f.s.ctx) // an error says that the session ends
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
	f.watch.stop()
	if f.quiet || r == nil {
		return
	}
	f.rec.Duration = time.Since(f.rec.Time)
	r.Record(f.rec)
}
