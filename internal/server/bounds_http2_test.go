package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

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

// TestResetStreamsAreForgotten: nothing stays of a stream of HTTP/2 that its client reset,
// nor of its connection. A client can reset very many.
func TestResetStreamsAreForgotten(t *testing.T) {
	begun, ended := make(chan weak.Pointer[net.TCPAddr], 1), make(chan struct{}, 1)
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "GET /reset", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		addr, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr) // the connection's own
		begun <- weak.Make(addr)
		<-r.Context().Done()
	})})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: tr, Timeout: patience}
	ctx, reset := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", w.url+"/reset", nil)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := c.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	addr := <-begun
	reset()
	<-answered
	<-ended
	// By its end the connection has heard all that the handler's end told it.
	if resp, _ := w.with(c, "GET", w.url+"/health", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
	tr.CloseIdleConnections()
	for until := time.Now().Add(patience); addr.Value() != nil; runtime.GC() {
		if time.Now().After(until) {
			t.Fatal("the server keeps what was of the stream")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
