package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/server"
)

// A sandbox that is stopped or destroyed while something is done in it is the
// answer, not that its agent does not answer any more.
func TestEndedMeanwhile(t *testing.T) {
	for end, code := range map[string]string{"stop": "not_running", "destroy": "not_running sandbox_destroyed"} { // the latter when it is gone already
		w := start(t)
		box := w.box()
		body, more := io.Pipe()
		type answer struct {
			resp *http.Response
			text string
		}
		got := make(chan answer, 1)
		go func() {
			resp, text := w.send("PUT", box+"/files?path=f", body, nil)
			got <- answer{resp, text}
		}()
		if _, err := more.Write(make([]byte, 32<<20)); err != nil { // more than lies in buffers: it has begun
			t.Fatal(err)
		}
		method, path := "POST", box+"/stop"
		if end == "destroy" {
			method, path = "DELETE", box
		}
		if resp, text := w.send(method, path, nil, nil); resp.StatusCode >= 300 {
			t.Fatalf("%s: %d %s", end, resp.StatusCode, text)
		}
		a := <-got // though its sender would go on
		_ = more.Close()
		var p server.Problem
		if err := json.Unmarshal([]byte(a.text), &p); err != nil || !strings.Contains(code, string(p.Code)) || p.Code == "" {
			t.Errorf("%s: %d %s, want %s", end, a.resp.StatusCode, a.text, code)
		}
	}
}
