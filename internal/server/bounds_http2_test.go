package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// TestSlowSenderHTTP2 stops in the middle of a body; others on the connection go
// on.
func TestSlowSenderHTTP2(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{BodyTimeout: time.Second}, server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /stream", Stream: true, Handler: echo})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: patience}
	for _, path := range []string{"/json", "/stream"} {
		body, sender := io.Pipe()
		go func() { _, _ = sender.Write([]byte("begun")) }()
		resp, answer := w.with(c, "POST", w.url+path, body)
		problem(t, resp, answer, 408, server.CodeTimeout)
		body.Close()
		if resp, _ := w.with(c, "GET", w.url+"/health", nil); resp.StatusCode != 200 {
			t.Errorf("afterwards: %d", resp.StatusCode)
		}
	}
}

// TestBusyReceiver: a sender is not silent while nobody reads what it sends.
func TestBusyReceiver(t *testing.T) {
	const timeout = time.Second
	reads := make(chan struct{})
	w := start(t, auth.Policy{NoAuth: true}, server.Options{BodyTimeout: timeout}, server.Route{Pattern: "POST /stream", Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * timeout)
		select {
		case reads <- struct{}{}:
		case <-r.Context().Done():
		}
		echo(w, r)
	})})
	for _, two := range []bool{false, true} {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(two)
		tr.Protocols.SetHTTP1(!two)
		defer tr.CloseIdleConnections()
		body, sender := io.Pipe()
		go func() {
			defer sender.Close()
			_, _ = sender.Write([]byte("x"))
			<-reads
			_, _ = sender.Write([]byte("y"))
		}()
		if resp, answer := w.with(&http.Client{Transport: tr, Timeout: patience}, "POST", w.url+"/stream", body); resp.StatusCode != 200 {
			t.Errorf("%s: %d, %s", resp.Proto, resp.StatusCode, answer)
		}
	}
}

// TestDeadlineEndsWithItsHandler: with HTTP/2 a body's time may be over when its handler
// has ended, read or not.
func TestDeadlineEndsWithItsHandler(t *testing.T) {
	const timeout = 50 * time.Millisecond
	w := start(t, auth.Policy{NoAuth: true}, server.Options{BodyTimeout: timeout}, server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /ignores", Handler: text("x")})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: patience}
	for _, path := range []string{"/json", "/ignores"} {
		if resp, answer := w.with(c, "POST", w.url+path, strings.NewReader("all")); resp.StatusCode != 200 {
			t.Errorf("%s: %d, %s", path, resp.StatusCode, answer)
		}
	}
	time.Sleep(2 * timeout)
	if resp, _ := w.with(c, "GET", w.url+"/health", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}
