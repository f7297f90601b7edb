package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
)

// Recorder takes audit records; audit.Log is one.
type Recorder interface {
	Write(audit.Record) error
}

// Bounds of the records of refused requests, of all addresses together. Anybody
// can be refused, without a key and as often as they like, and the audit log keeps
// its newest 256 MiB: at this rate, and with at most 2 KiB each, refusals alone take
// two weeks to fill that.
const (
	refusalsAtOnce = 100
	refusalEvery   = 10 * time.Second
)

// refusals records who was refused, or how many more there were.
type refusals struct {
	to    Recorder // nil: nobody
	limit *rate.Limiter

	mu   sync.Mutex
	more int // that are in no record yet
}

func newRefusals(to Recorder) *refusals {
	return &refusals{to: to, limit: rate.NewLimiter(rate.Every(refusalEvery), refusalsAtOnce)}
}

// record records a request that was refused, and with it how many were not
// recorded since the last record.
func (f *refusals) record(r *http.Request, p *Problem) error {
	if f.to == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.limit.Allow() {
		f.more++
		return nil
	}
	details := map[string]string{"method": sandbox.Clip(r.Method, maxLogged), "path": sandbox.Clip(r.URL.Path, maxLogged), "from": r.RemoteAddr, "why": p.Detail}
	return f.write(audit.Record{RequestID: RequestID(r.Context()), Result: string(p.Code), Details: details})
}

// end records how many were not recorded, if any.
func (f *refusals) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more == 0 {
		return nil
	}
	return f.write(audit.Record{Result: string(CodeUnauthenticated), Details: map[string]string{}})
}

// write writes a record with the number of those that are in none; mu is held.
func (f *refusals) write(r audit.Record) error {
	r.Action = audit.AuthRefused
	if f.more > 0 {
		r.Details["more"] = strconv.Itoa(f.more)
	}
	err := f.to.Write(r)
	if err == nil {
		f.more = 0
	}
	return err
}
