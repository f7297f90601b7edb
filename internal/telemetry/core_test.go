package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agentbox/internal/sandbox"
	"agentbox/internal/telemetry"
)

func TestCore(t *testing.T) {
	c := telemetry.New()
	c.Watch(func() map[sandbox.State]int { return map[sandbox.State]int{sandbox.Live: 3, sandbox.Stopped: 1} })
	c.Created(nil, 120*time.Millisecond)
	c.Created(sandbox.TooMany(3, true), time.Second)
	c.Created(fmt.Errorf("create: %w", context.Canceled), time.Second)
	c.Created(errors.New("the disk is broken"), time.Second)
	for o := sandbox.Exited; o <= sandbox.Lost; o++ {
		c.Executed(&sandbox.Result{Outcome: o, Duration: 20 * time.Millisecond}, nil)
	}
	c.Executed(nil, &sandbox.StateError{})
	c.Ended(sandbox.ReasonOOM)
	c.Ended(sandbox.ReasonIdle)
	c.TokenRefused()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body := w.Body.String()
	for _, want := range []string{
		`agentbox_creates_total{result="canceled"} 1`,
		`agentbox_creates_total{result="failed"} 1`,
		`agentbox_creates_total{result="ok"} 1`,
		`agentbox_creates_total{result="refused"} 1`,
		`agentbox_execs_total{result="canceled"} 1`,
		`agentbox_execs_total{result="exited"} 1`,
		`agentbox_execs_total{result="lost"} 1`,
		`agentbox_execs_total{result="oom"} 1`,
		`agentbox_execs_total{result="refused"} 1`,
		`agentbox_execs_total{result="signaled"} 1`,
		`agentbox_execs_total{result="timed_out"} 1`,
		`agentbox_oom_kills_total 2`,
		`agentbox_egress_tokens_refused_total 1`,
		`agentbox_sandbox_ends_total{reason="idle"} 1`,
		`agentbox_sandbox_ends_total{reason="oom"} 1`,
		`agentbox_sandboxes{state="creating"} 0`,
		`agentbox_sandboxes{state="destroying"} 0`,
		`agentbox_sandboxes{state="error"} 0`,
		`agentbox_sandboxes{state="running"} 3`,
		`agentbox_sandboxes{state="starting"} 0`,
		`agentbox_sandboxes{state="stopped"} 1`,
		`agentbox_sandboxes{state="stopping"} 0`,
		"agentbox_create_duration_seconds_count 1", // failures tell nothing of how long it takes
		`agentbox_create_duration_seconds_bucket{le="0.15"} 1`, `agentbox_create_duration_seconds_bucket{le="0.1"} 0`,
		"agentbox_exec_duration_seconds_count 6",
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
}
