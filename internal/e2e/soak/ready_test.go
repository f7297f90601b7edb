package soak

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"agentbox/internal/e2e"
)

// TestF01_Ready: a daemon that was killed is back soon, with all its sandboxes and
// what counts in them.
func TestF01_Ready(t *testing.T) {
	const many = 20
	d := e2e.StartDaemon(t)
	workers := make([]*worker, many)
	parallel(2, many, func(i int) {
		w := &worker{t: t, d: d, rnd: rand.New(rand.NewPCG(uint64(i), 0)), owner: "default", key: d.Key, name: fmt.Sprint("w", i)}
		workers[i] = w
		w.create()
		w.exec(w.boxes[0])
		w.background(w.boxes[0])
	})
	for range 3 {
		d.Kill()
		began := time.Now()
		d.Start()
		took := time.Since(began)
		t.Logf("ready after %v with %d sandboxes", took.Round(time.Millisecond), many)
		if limit := ready + e2e.Slack(); took > limit {
			t.Errorf("it was ready after %v, allowed are %v", took, limit)
		}
		parallel(2, many, func(i int) { workers[i].verify() })
	}
}
