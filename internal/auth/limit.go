package auth

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Rates are requests per second; 0 = no limit. Twice as many, at least one, may
// come at once.
type Rates struct {
	// PerKey bounds each API key.
	PerKey float64
	// PerAddress bounds each address, whatever its keys.
	PerAddress float64
	// Refused bounds how often an address is told that it is refused.
	Refused float64
	// Exempt are networks that the bounds of addresses don't concern.
	Exempt []netip.Prefix
}

// RateError tells that there were too many requests.
type RateError struct {
	// After is when the next one has a chance.
	After time.Duration
}

func (e *RateError) Error() string { return "too many requests" }

// Unwrap gives the error its class.
func (e *RateError) Unwrap() error { return errdefs.ErrResourceExhausted }

// maxBuckets bounds the memory for clients that come from everywhere: about
// 200 bytes each. The one that was silent for longest is forgotten first.
const maxBuckets = 16_384

type limits struct {
	exempt              []netip.Prefix
	keys, addrs, denied *buckets
}

func newLimits(r Rates) *limits {
	return &limits{exempt: r.Exempt, keys: newBuckets(r.PerKey), addrs: newBuckets(r.PerAddress), denied: newBuckets(r.Refused)}
}

func (l *limits) key(id string) error { return l.keys.take(id) }

func (l *limits) address(a netip.Addr) error { return l.of(a, l.addrs.take) }

// refused counts a refusal.
func (l *limits) refused(a netip.Addr) error { return l.of(a, l.denied.take) }

// guessed is not nil for an address that was refused as often as it may be.
func (l *limits) guessed(a netip.Addr) error { return l.of(a, l.denied.spent) }

func (l *limits) of(a netip.Addr, do func(name string) error) error {
	if slices.ContainsFunc(l.exempt, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil { // whoever has one address of it has all
			a = p.Addr()
		}
	}
	return do(a.String())
}

// buckets has one token bucket per name.
type buckets struct {
	rate  rate.Limit
	burst int

	mu     sync.Mutex
	byName *simplelru.LRU[string, *rate.Limiter]
}

// newBuckets returns nil for no limit.
func newBuckets(perSecond float64) *buckets {
	if perSecond <= 0 {
		return nil
	}
	lru, _ := simplelru.NewLRU[string, *rate.Limiter](maxBuckets, nil) // fails for a size below 1 only
	return &buckets{rate: rate.Limit(perSecond), burst: max(1, int(2*perSecond)), byName: lru}
}

func (b *buckets) take(name string) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket, ok := b.byName.Get(name)
	if !ok {
		bucket = rate.NewLimiter(b.rate, b.burst)
		b.byName.Add(name, bucket)
	}
	r := bucket.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return &RateError{After: wait}
	}
	return nil
}

// spent is what take would return, and takes nothing.
func (b *buckets) spent(name string) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket, ok := b.byName.Get(name)
	if !ok {
		return nil
	}
	if left := bucket.Tokens(); left < 1 {
		return &RateError{After: time.Duration((1 - left) / float64(b.rate) * float64(time.Second))}
	}
	return nil
}
