// Package journal keeps the records of sandboxes' connections in files that only
// grow and of which the oldest go first. It never holds up who records: of a
// flood it keeps the beginning and how many more there were.
package journal

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"agentbox/internal/audit"
	"agentbox/internal/egress"
)

const (
	// perSecond and burst bound the records of one sandbox, of connections that were
	// allowed and of others each: a package manager makes some hundred requests at
	// once, a program that does its work a few each second. With texts as long as
	// maxText a flood of one sandbox takes hours to fill the files.
	perSecond = 5
	burst     = 1000
	// maxText and maxMethod bound what a record has of texts that the sandbox chose.
	maxText   = 256
	maxMethod = 32
	// known is of how many sandboxes it is known how much they recorded.
	known = 4096
	// waiting is how many records may wait for the disk.
	waiting = 4096

	actionConnect audit.Action = "connect"
	actionOmitted audit.Action = "omitted"
)

// Journal keeps records. Any number of goroutines may use it.
type Journal struct {
	log   *audit.Log
	say   *slog.Logger
	queue chan audit.Record
	done  chan struct{}
	lost  atomic.Int64

	mu     sync.Mutex
	closed bool
	rates  *simplelru.LRU[string, *flow]
}

// flow is what one sandbox records.
type flow struct {
	owner           string
	allowed, others *rate.Limiter // so that denials can't hide what was reached
	omitted         int           // since the last record
}

// rate is the one for records of an outcome.
func (f *flow) rate(o egress.Outcome) *rate.Limiter {
	if o == egress.Allowed {
		return f.allowed
	}
	return f.others
}

// Open opens the journal in a directory, which is made if it is not there. say is
// for the operator: that records can't be written, and that they can again.
func Open(dir string, o audit.Options, say *slog.Logger) (*Journal, error) {
	log, err := audit.Open(dir, o)
	if err != nil {
		return nil, err
	}
	j := &Journal{log: log, say: say, queue: make(chan audit.Record, waiting), done: make(chan struct{})}
	j.rates, _ = simplelru.NewLRU(known, j.tell) // fails for sizes below 1 only
	go j.write()
	return j, nil
}

// Close writes what waits.
func (j *Journal) Close() error {
	j.mu.Lock()
	for _, uid := range j.rates.Keys() {
		if f, ok := j.rates.Peek(uid); ok {
			j.tell(uid, f)
		}
	}
	if !j.closed {
		close(j.queue)
	}
	j.closed = true
	j.mu.Unlock()
	<-j.done
	return j.log.Close()
}

// Record keeps a record, or counts it.
func (j *Journal) Record(r egress.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	f, ok := j.rates.Get(r.Sandbox)
	if !ok {
		f = &flow{owner: r.Owner, allowed: rate.NewLimiter(perSecond, burst), others: rate.NewLimiter(perSecond, burst)}
		j.rates.Add(r.Sandbox, f)
	}
	if !f.rate(r.Verdict).Allow() {
		f.omitted++
		j.lost.Add(1)
		return
	}
	j.tell(r.Sandbox, f)
	if !j.put(encode(r)) {
		f.omitted++
		j.lost.Add(1)
	}
}

// tell records how many records there are not. The caller holds j.mu.
func (j *Journal) tell(uid string, f *flow) {
	if f.omitted == 0 {
		return
	}
	r := audit.Record{Time: time.Now(), Action: actionOmitted, Owner: f.owner, Sandbox: uid, Details: map[string]string{"count": strconv.Itoa(f.omitted)}, Result: audit.OK}
	if j.put(r) {
		f.omitted = 0
	}
}

func (j *Journal) put(r audit.Record) bool {
	select {
	case j.queue <- r:
		return true
	default:
		return false
	}
}

func (j *Journal) write() {
	defer close(j.done)
	failing := false
	for r := range j.queue {
		err := j.log.Write(r)
		if err != nil {
			j.lost.Add(1)
		}
		if (err != nil) != failing {
			failing = err != nil
			j.say.Warn("records of sandboxes' connections", "written", !failing, "error", err)
		}
	}
}

// Lost is how many records are not kept: of floods, which entries tell of, and
// those that could not be written.
func (j *Journal) Lost() int64 { return j.lost.Load() }

// Err is why the last record could not be written.
func (j *Journal) Err() error { return j.log.Err() }

// Entry is a record that was kept, or, if Omitted is not 0, how many were not.
type Entry struct {
	egress.Record
	Omitted int
}

// Query selects entries of one sandbox of an owner.
type Query struct {
	Owner, Sandbox string
	Since          time.Time
	OldestFirst    bool
	Cursor         string
	Limit          int
}

// Page is a part of what was asked for. It can be empty and have a Next: a call
// reads a bounded part of the files.
type Page struct {
	Entries []Entry
	Next    string
}

// Query reads the journal. What was recorded just now may not be there yet.
func (j *Journal) Query(ctx context.Context, q Query) (Page, error) {
	found, err := j.log.Query(ctx, audit.Query{
		Owner: q.Owner, Sandbox: q.Sandbox, Since: q.Since, OldestFirst: q.OldestFirst, Cursor: q.Cursor, Limit: q.Limit,
	})
	if err != nil {
		return Page{}, err
	}
	page := Page{Next: found.Next}
	for _, r := range found.Records {
		page.Entries = append(page.Entries, decode(r))
	}
	return page, nil
}

func encode(r egress.Record) audit.Record {
	d := map[string]string{"kind": string(r.Kind), "verdict": string(r.Verdict), "port": strconv.Itoa(int(r.Port))}
	set := func(name, v string) {
		if v != "" {
			d[name] = v[:min(len(v), maxText)]
		}
	}
	number := func(name string, v int64) {
		if v != 0 {
			d[name] = strconv.FormatInt(v, 10)
		}
	}
	if r.Addr.IsValid() {
		d["address"] = r.Addr.String()
	}
	if r.Intercepted {
		d["intercepted"] = "true"
	}
	if r.Open {
		d["open"] = "true"
	}
	set("name", r.Name)
	set("rule", r.Rule)
	set("reason", r.Reason)
	set("method", r.Method[:min(len(r.Method), maxMethod)])
	set("path", r.Path)
	number("sent", r.BytesUp)
	number("received", r.BytesDown)
	number("duration", int64(r.Duration))
	number("status", int64(r.Status))
	result := audit.OK
	if r.Code != "" {
		result = string(r.Code)
	}
	// The log wants the time of the end.
	return audit.Record{Time: r.Time.Add(r.Duration), Action: actionConnect, Owner: r.Owner, Sandbox: r.Sandbox, Details: d, Result: result}
}

// decode is the reverse of encode. The file is the daemon's own.
func decode(r audit.Record) Entry {
	d := r.Details
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(d[name], 10, 64)
		return n
	}
	e := Entry{Record: egress.Record{Time: r.Time, Sandbox: r.Sandbox, Owner: r.Owner}}
	if r.Action == actionOmitted {
		e.Omitted = int(number("count"))
		return e
	}
	e.Kind, e.Verdict, e.Name, e.Rule, e.Reason = egress.Kind(d["kind"]), egress.Outcome(d["verdict"]), d["name"], d["rule"], d["reason"]
	e.Method, e.Path, e.Intercepted = d["method"], d["path"], d["intercepted"] == "true"
	e.Open = d["open"] == "true"
	e.Addr, _ = netip.ParseAddr(d["address"])
	e.Port, e.Status = uint16(number("port")), int(number("status"))
	e.BytesUp, e.BytesDown, e.Duration = number("sent"), number("received"), time.Duration(number("duration"))
	e.Time = e.Time.Add(-e.Duration)
	if r.Result != audit.OK {
		e.Code = egress.Code(r.Result)
	}
	return e
}
