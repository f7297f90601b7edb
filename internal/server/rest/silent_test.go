package rest_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// TestSilentSender: who falls silent in the middle of a body hears that, and not what
// became of the half that arrived.
func TestSilentSender(t *testing.T) {
	w := start(t, func(o *server.Options) { o.BodyTimeout = time.Second })
	box := w.box()
	w.volume(w.user, "v")
	cat := read[rest.ExecResult](t, w.in("POST", box+"/execute", `{"command":"cat","detach":true,"open_stdin":true}`, 202)).ExecID
	const head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"
	for name, q := range map[string]struct{ method, path, kind, begin string }{
		"file":           {"PUT", box + "/files?path=f", "application/octet-stream", "abc"},
		"form":           {"POST", box + "/files/upload", "multipart/form-data; boundary=b", head + "abc"},
		"head of a form": {"POST", box + "/files/upload", "multipart/form-data; boundary=b", head[:20]},
		"archive":        {"PUT", box + "/files/archive?path=d", "application/x-tar", "abc"},
		"volume":         {"PUT", "/api/v1/volumes/v/archive", "application/x-tar", "abc"},
		"input":          {"POST", box + "/execs/" + cat + "/stdin", "application/octet-stream", "abc"},
		"JSON":           {"POST", box + "/execute", "application/json", "{"},
	} {
		for _, two := range []bool{false, true} {
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetHTTP1(!two)
			tr.Protocols.SetUnencryptedHTTP2(two)
			defer tr.CloseIdleConnections()
			body, sender := io.Pipe()
			defer body.Close()
			r, err := http.NewRequestWithContext(t.Context(), q.method, w.url+q.path, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-API-Key", w.user)
			r.Header.Set("Content-Type", q.kind)
			go func() { _, _ = io.WriteString(sender, q.begin) }()
			resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Do(r)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if got := problem(t, resp, string(text)); got != "408 timeout" {
				t.Errorf("%s by %s: %s", name, resp.Proto, got)
			}
		}
	}
}
