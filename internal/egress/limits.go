package egress

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"agentbox/internal/pump"
)

// Limits of one session.
type Limits struct {
	// Conns is how many connections may be open at once. More are answered with
	// 429. 0: DefaultConns.
	Conns int
	// BytesPerSecond bounds each direction, all connections together. 0: no bound.
	BytesPerSecond int64
	// Bytes bounds what goes in both directions in the life of the session; then
	// all its connections end. 0: no bound.
	Bytes int64
}

// DefaultConns holds where the operator sets none; the guest's tunnel carries 224.
const DefaultConns = 256

// Timeouts of connections. Zero fields have their default.
type Timeouts struct {
	// Head is how long a head of a request, a greeting or a handshake may take
	// from its first byte. Default 30 s.
	Head time.Duration
	// KeepAlive is how long a connection may wait for its next request. Default
	// 90 s.
	KeepAlive time.Duration
	// Idle is how long a connection may be without a byte in either direction.
	// Default 10 min: as long as slow answers of models take.
	Idle time.Duration
	// Body is how long the proxy waits for 1 KiB of a request's body. Default 1
	// min. The time in which the server does not take it does not count.
	Body time.Duration
	// Continue is how long a server has to say that it wants a body that is sent
	// only then. After that it is sent. Default 1 s, as long as curl waits.
	Continue time.Duration
	// Open is after what time a connection that is still open is recorded for the
	// first time. Default 5 s.
	Open time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	for _, f := range []struct {
		d   *time.Duration
		def time.Duration
	}{{&t.Head, 30 * time.Second}, {&t.KeepAlive, 90 * time.Second}, {&t.Idle, 10 * time.Minute}, {&t.Body, time.Minute}, {&t.Continue, time.Second}, {&t.Open, 5 * time.Second}} {
		if *f.d <= 0 {
			*f.d = f.def
		}
	}
	return t
}

const (
	// largePieces is how many streams of a session move in large pieces at once: 1 MiB
	// of memory for each sandbox.
	largePieces = 4
	// largeRate is the bound of a rate, in bytes per second, below which there are
	// none: what has come of a large piece would wait for the rest of it.
	largeRate = 16 << 20
	// maxHead bounds the head of a request, and the beginning of a TLS connection
	// that has the ClientHello in it. It is the size of the reader's buffer.
	maxHead = 32 << 10
	// maxAnswerHead bounds the head of an answer: cookies and policies of big
	// sites have a few tens of KiB.
	maxAnswerHead = 128 << 10
	// minBody is how much of a body must come in Timeouts.Body.
	minBody = 1 << 10
	// refusals is how many of a session are answered each second, and refusalsBurst
	// how many at once before that: judging and answering costs the host processor
	// time, which a sandbox that only asks has no bound for.
	refusals, refusalsBurst = 100, 1000
	// maxRefused bounds the connections of a session beyond its limit that are
	// told so. Others are closed.
	maxRefused = 32
	// lingerTime and lingerBytes bound how long the proxy takes what a client still
	// sends after the answer: to close at once would take the answer from it.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
	// halfClosed is how long a request whose client closed its direction waits for
	// the answer to begin. Such a client is hardly ever there any more.
	halfClosed = 10 * time.Second
)

// errBytes ends connections of a session that has used up Limits.Bytes.
var errBytes = errors.New("the sandbox has used up the bytes that it may transfer")

// meter counts and slows down what a session transfers, and has what it moves with.
type meter struct {
	limit    int64 // 0: none
	up, down direction
	pumps    *pump.Pool
}

type direction struct {
	bytes atomic.Int64
	rate  *rate.Limiter // nil: no bound
}

func newMeter(l Limits) *meter {
	m := &meter{limit: l.Bytes, pumps: pump.New(largePieces)}
	if l.BytesPerSecond > 0 {
		if l.BytesPerSecond < largeRate {
			m.pumps = pump.New(0)
		}
		// At least one piece goes at once, or nothing would ever.
		burst := int(max(pump.Small, min(l.BytesPerSecond, 1<<20)))
		m.up.rate = rate.NewLimiter(rate.Limit(l.BytesPerSecond), burst)
		m.down.rate = rate.NewLimiter(rate.Limit(l.BytesPerSecond), burst)
	}
	return m
}

// used is what went in both directions.
func (m *meter) used() int64 { return m.up.bytes.Load() + m.down.bytes.Load() }

// exhausted reports whether no byte is left.
func (m *meter) exhausted() bool { return m.limit > 0 && m.used() >= m.limit }

// take counts n bytes of a direction and waits until they may go.
func (m *meter) take(ctx context.Context, d *direction, n int) error {
	d.bytes.Add(int64(n))
	if m.limit > 0 && m.used() > m.limit {
		return errBytes
	}
	for d.rate != nil && n > 0 {
		part := min(n, d.rate.Burst())
		if err := d.rate.WaitN(ctx, part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}
