package server

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// flight counts the requests that are being served, so that a stop can wait for
// them. Those that watch the server don't hold it up.
type flight struct {
	gauge prometheus.Gauge

	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0, while somebody waits
}

func (f *flight) begin(r *http.Request) (done func()) {
	if p := r.URL.Path; p == "/health" || p == "/readiness" || p == "/metrics" || strings.HasPrefix(p, "/debug/") {
		return func() {}
	}
	f.add(1)
	return func() { f.add(-1) }
}

func (f *flight) add(d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n += d
	f.gauge.Set(float64(f.n))
	if f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

func (f *flight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// wait returns when nothing is in flight, or when ctx is done. One at a time
// waits.
func (f *flight) wait(ctx context.Context) {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	f.idle = idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
