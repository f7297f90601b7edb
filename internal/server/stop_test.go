package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// TestF09_Stop stops a server that has work: it says so, refuses what is new,
// and lets what runs end.
func TestF09_Stop(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	w := start(t, auth.Policy{NoAuth: true}, server.Options{StopGrace: time.Minute},
		server.Route{Pattern: "POST /exec", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-release
			_, _ = io.WriteString(w, "done")
		})},
		server.Route{Pattern: "POST /create", Creates: true, Handler: text("made")})
	exec := make(chan string, 1)
	go func() { _, body := w.do("POST", "/exec", nil); exec <- body }()
	<-entered
	if _, body := w.do("POST", "/create", nil); body != "made" {
		t.Errorf("create before: %q", body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	<-w.Draining()
	if resp, body := w.do("GET", "/readiness", nil); resp.StatusCode != 503 || body != "{\"status\":\"stopping\"}\n" {
		t.Errorf("readiness: %d %q", resp.StatusCode, body)
	}
	if resp, _ := w.do("GET", "/health", nil); resp.StatusCode != 200 {
		t.Errorf("health: %d", resp.StatusCode)
	}
	resp, body := w.do("POST", "/create", nil)
	problem(t, resp, body, 503, server.CodeUnavailable)
	if resp.Header.Get("Retry-After") != "60" {
		t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
	}
	close(release)
	if body := <-exec; body != "done" {
		t.Errorf("the running request ended with %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", w.tcp.String()); err == nil {
		conn.Close()
		t.Error("somebody listens on")
	}
}

// TestStopCuts what does not end within the grace.
func TestStopCuts(t *testing.T) {
	entered := make(chan struct{})
	w := start(t, auth.Policy{NoAuth: true}, server.Options{StopGrace: 50 * time.Millisecond}, server.Route{Pattern: "GET /ever", Stream: true, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})})
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.url+"/ever", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		if resp, err := w.client.Do(r); err == nil {
			resp.Body.Close()
		}
		close(ended)
	}()
	<-entered
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestNoAuthIsForThisMachine(t *testing.T) {
	gate, err := auth.NewGate(nil, auth.Policy{NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := server.New(server.Options{Gate: gate, Origins: gate.Origins(), NoAuth: true})
	if err := s.Serve(ctx, l); err == nil || !strings.Contains(err.Error(), "without authentication") {
		t.Errorf("served all interfaces: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}
