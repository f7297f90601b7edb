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
