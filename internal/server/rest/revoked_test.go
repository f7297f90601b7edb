package rest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agentbox/internal/server/rest"
)

// TestRevokedKeyEndsWhatIsOpen: whoever has a key that leaked loses with it what was
// begun by it, not only what would come next.
func TestRevokedKeyEndsWhatIsOpen(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	w.in("POST", box+"/execute", `{"command":["echod","8080"],"detach":true}`, 202)
	for len(read[rest.PortList](t, w.in("GET", box+"/ports", "", 200)).Items) == 0 {
	}
	begun := read[rest.ExecResult](t, w.in("POST", box+"/execute", `{"command":"sleep 600","detach":true}`, 202))

	_, text := w.do(w.admin, "POST", "/api/v1/keys", "application/json", `{"owner":"acme","name":"leaked"}`)
	leaked := read[rest.NewKey](t, text)
	good := w.user
	w.user = leaked.Secret // of the WebSockets
	shell, port := w.socket(box+"/terminal?command=sleep+600"), w.socket(box+"/ports/8080/connect")
	w.user = good
	ends := map[string]func() error{
		"terminal": func() error { _, _, err := shell.ws.Read(shell.ctx); return err },
		"port":     func() error { _, _, err := port.ws.Read(port.ctx); return err },
	}
	for name, r := range map[string]struct{ method, path, body string }{
		"events":      {"GET", box + "/events?follow=true", ""},
		"watch":       {"GET", box + "/files/watch?path=/tmp", ""},
		"exec stream": {"POST", box + "/execute/stream", `{"command":"sleep 600"}`},
		"exec output": {"GET", box + "/execs/" + begun.ExecID + "/output?follow=true", ""},
	} {
		body := w.opened(t, leaked.Secret, r.method, r.path, r.body)
		ends[name] = func() error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			return io.EOF
		}
	}
	wait := make(chan string, 1)
	go func() {
		resp, text := w.do(leaked.Secret, "POST", box+"/execs/"+begun.ExecID+"/wait", "", "")
		wait <- fmt.Sprint(resp.StatusCode, " ", text)
	}()
	kept := w.opened(t, good, "GET", box+"/events?follow=true", "")
	shell.control() // it runs
	if resp, text := w.do(w.admin, "DELETE", "/api/v1/keys/"+leaked.ID, "", ""); resp.StatusCode != 204 {
		t.Fatalf("revoke: %d %s", resp.StatusCode, text)
	}
	for name, end := range ends {
		if err := end(); err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s goes on by a revoked key: %v", name, err)
		}
	}
	// A request that would be let in no more is told why, whether it waits already or not.
	if got := <-wait; !strings.HasPrefix(got, "401 ") {
		t.Errorf("wait: %s", got)
	}
	w.in("POST", box+"/stop", "", 200)
	lines := bufio.NewScanner(kept)
	for lines.Scan() && !strings.Contains(lines.Text(), `"stopped"`) {
	}
	if lines.Err() != nil || !strings.Contains(lines.Text(), `"stopped"`) {
		t.Errorf("the stream of another key ended: %v", lines.Err())
	}
}

// opened begins a stream of a key; it ends with the test, or after a minute.
func (w *world) opened(t *testing.T, key, method, path, body string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	r.Header.Set("Accept", "text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
	}
	return resp.Body
}
