package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

func TestMetrics(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{}, server.Route{Pattern: "GET /things/{id}", Handler: text("x")})
	for _, id := range []string{"1", "2", "3"} {
		w.do("GET", "/things/"+id, nil, "X-API-Key", w.user)
		w.do("GET", "/none/"+id, nil, "X-API-Key", w.user)
	}
	w.do("BREW", "/things/1", nil, "X-API-Key", w.user)
	_, body := w.do("GET", "/metrics", nil, "X-API-Key", w.admin)
	for _, want := range []string{
		`http_requests_total{method="GET",path="/things/{id}",status="200",status_code="200"} 3`,
		`http_requests_total{method="GET",path="other",status="404",status_code="404"} 3`,
		`http_requests_total{method="other",path="other",status="405",status_code="405"} 1`,
		`http_request_latency_seconds_count{method="GET",path="/things/{id}"} 3`,
		`http_request_duration_seconds_bucket{method="GET",path="/things/{id}",le="10"} 3`,
		`agentbox_http_requests_in_flight 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if strings.Contains(body, "/things/1") || strings.Contains(body, "BREW") {
		t.Error("what clients send is in the metrics")
	}
}

// TestMetricsListener needs no key, and is for this machine.
func TestMetricsListener(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.ServeMetrics(ctx, l) }()
	url := "http://" + l.Addr().String()
	if resp, body := w.with(w.client, "GET", url+"/metrics", nil); resp.StatusCode != 200 || !strings.Contains(body, "agentbox_http_requests_in_flight") {
		t.Errorf("/metrics: %d", resp.StatusCode)
	}
	resp, body := w.with(w.client, "GET", url+"/metrics", nil, "Host", "evil.test")
	problem(t, resp, body, 403, server.CodeForbidden)
	resp, body = w.with(w.client, "GET", url+"/debug/pprof/", nil)
	problem(t, resp, body, 404, server.CodeNotFound)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if l, err = net.Listen("tcp", "0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	if err := w.ServeMetrics(t.Context(), l); err == nil || !strings.Contains(err.Error(), "this machine") {
		t.Errorf("served all interfaces: %v", err)
	}
}

// TestMetricsOfStreams: streams are counted while they are open, bytes as they
// come and go.
func TestMetricsOfStreams(t *testing.T) {
	open, end := make(chan struct{}), make(chan struct{})
	w := start(t, auth.Policy{}, server.Options{}, server.Route{Pattern: "POST /events", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		close(open)
		<-end
	})})
	metrics := func() string {
		_, body := w.do("GET", "/metrics", nil, "X-API-Key", w.admin)
		return body
	}
	if body := metrics(); !strings.Contains(body, `agentbox_http_streams{kind="events"} 0`) || !strings.Contains(body, `agentbox_http_streams{kind="websocket"} 0`) {
		t.Error("before: ", body)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.do("POST", "/events", strings.NewReader("12345"), "X-API-Key", w.user)
	}()
	<-open
	body := metrics()
	for _, want := range []string{`agentbox_http_streams{kind="events"} 1`, "agentbox_http_received_bytes_total 5"} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	close(end)
	<-done
	if body := metrics(); !strings.Contains(body, `agentbox_http_streams{kind="events"} 0`) {
		t.Error("afterwards a stream is open")
	}
}
