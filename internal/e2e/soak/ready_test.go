package soak

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/e2e"
)

// TestServiceReady: a daemon that was killed is back soon, with all its sandboxes.
func TestServiceReady(t *testing.T) {
	const many = 20
	d := e2e.StartDaemon(t)
	var made atomic.Int32
	parallel(2, many, func(i int) {
		a, err := d.Try(e2e.Call{Key: d.Key, Method: "POST", Path: "/sandboxes", Body: fmt.Sprintf(`{"name":"b%d","memory":"160m"}`, i)})
		if err != nil || a.Code != 201 {
			t.Errorf("create: %d %s, %v", a.Code, a.Body, err)
			return
		}
		made.Add(1)
	})
	for range 3 {
		d.Kill()
		began := time.Now()
		d.Start()
		took := time.Since(began)
		t.Logf("ready after %v with %d sandboxes", took.Round(time.Millisecond), made.Load())
		if limit := ready + e2e.Slack(); took > limit {
			t.Errorf("it was ready after %v, allowed are %v", took, limit)
		}
		parallel(2, many, func(i int) {
			a, err := d.Try(e2e.Call{Key: d.Key, Method: "POST", Path: fmt.Sprintf("/sandboxes/b%d/execute", i), Body: `{"command":"true"}`})
			if err != nil || a.Code != 200 {
				t.Errorf("use b%d: %d %s, %v", i, a.Code, a.Body, err)
			}
		})
	}
}
