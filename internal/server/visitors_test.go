package server_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// TestStrangersConnections: who has no key can't keep those out who have one, by
// however many connections, and takes nothing away from them.
func TestStrangersConnections(t *testing.T) {
	for name, say := range map[string]string{
		"silent": "", "half of a head": "GET /health HTTP/1.1\r\nHost: localhost\r\nX-", "idle": "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"refused": "GET /ever HTTP/1.1\r\nHost: localhost\r\n\r\n", "half of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered := make(chan struct{})
			ever := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				close(entered)
				<-r.Context().Done()
			})
			w := start(t, auth.Policy{}, server.Options{Connections: 5}, server.Route{Pattern: "GET /ever", Stream: true, Handler: ever})
			stream := w.raw()
			if _, err := io.WriteString(stream, "GET /ever HTTP/1.1\r\nHost: localhost\r\nX-API-Key: "+w.user+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			<-entered
			var strangers []net.Conn
			for range 20 {
				c := w.raw()
				if _, err := io.WriteString(c, say); err != nil {
					t.Fatal(err)
				}
				strangers = append(strangers, c)
			}
			if _, err := io.Copy(io.Discard, strangers[0]); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the first of the strangers keeps its place")
			}
			if resp, _ := w.do("GET", "/none", nil, "X-API-Key", w.user); resp.StatusCode != 404 {
				t.Errorf("with a key: %d", resp.StatusCode)
			}
			if resp, err := http.ReadResponse(bufio.NewReader(stream), nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("the stream of a key: %v", err)
			}
		})
	}
}

// TestKeysConnections: those on which something is done are bounded, too, and keep
// their places; the local socket is not concerned.
func TestKeysConnections(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	w := start(t, auth.Policy{}, server.Options{Connections: 2}, server.Route{Pattern: "GET /ever", Stream: true, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-leave:
		}
	})})
	open := func() net.Conn {
		c := w.raw()
		if _, err := io.WriteString(c, "GET /ever HTTP/1.1\r\nHost: localhost\r\nX-API-Key: "+w.user+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := open()
	<-entered
	open()
	<-entered
	if got := status(t, open()); got != 0 {
		t.Errorf("one more than may be: %d", got)
	}
	local := w.local()
	if resp, _ := w.with(local, "GET", "http://localhost/none", nil); resp.StatusCode != 404 {
		t.Errorf("by the local socket: %d", resp.StatusCode)
	}
	close(leave)
	if got := status(t, first); got != 200 {
		t.Errorf("the first: %d", got)
	}
	if resp, _ := w.do("GET", "/none", nil, "X-API-Key", w.user); resp.StatusCode != 404 {
		t.Errorf("when they ended: %d", resp.StatusCode)
	}
}

// TestCodedBodies are refused where nothing decodes them: a proxy that does would
// have judged another body.
func TestCodedBodies(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "POST /json", Handler: echo},
		server.Route{Pattern: "POST /stream", Stream: true, Handler: echo}, server.Route{Pattern: "POST /coded", Stream: true, Coded: true, Handler: echo})
	for _, c := range []struct {
		path, coding string
		refused      bool
	}{
		{"/json", "gzip", true}, {"/json", "br", true}, {"/json", "identity, gzip", true}, {"/json", "identity", false}, {"/json", "", false},
		{"/stream", "gzip", true}, {"/stream", "Identity", false}, {"/coded", "gzip", false},
	} {
		resp, body := w.do("POST", c.path, strings.NewReader("{}"), "Content-Encoding", c.coding)
		switch {
		case c.refused:
			problem(t, resp, body, 415, server.CodeUnsupportedMedia)
		case resp.StatusCode != 200:
			t.Errorf("%s with %q: %d %s", c.path, c.coding, resp.StatusCode, body)
		}
	}
}
