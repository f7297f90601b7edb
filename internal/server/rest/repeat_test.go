package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// once sends a request with a key of idempotency.
func (w *world) once(apiKey, path, body, key string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), "POST", w.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", apiKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// TestRepeats: whatever makes something does so once for a key, and says the
// same to all who ask, at once or later.
func TestRepeats(t *testing.T) {
	w := start(t)
	box := "/sandboxes/" + w.create(w.admin, `{"user":"user","workdir":"/workspace"}`).ShortID
	for i, c := range []struct{ path, body, other string }{
		{"/keys", `{"owner":"team","name":"ci"}`, `{"owner":"team"}`},
		{"/images/pull", `{"reference":"new.example/tool"}`, `{"reference":"new.example/other"}`},
		{box + "/sessions", `{"name":"s"}`, `{"name":"t"}`},
		{box + "/execute", `{"command":"echo x >> n; cat; exit 3","stdin":"in"}`, `{"command":"echo x >> n; cat; exit 3","stdin":"other"}`},
		{box + "/execute?encoding=base64", `{"command":"echo y; exit 3"}`, `{"command":"echo y"}`},
		{box + "/execute", `{"command":"echo x >> n; sleep 1000","detach":true}`, `{"command":"true"}`},
		{box + "/execute", `{"command":"echo z","session":"s"}`, `{"command":"true","session":"s"}`},
		{box + "/execute/stream", `{"command":"echo x >> n; echo out"}`, `{"command":"true"}`},
		{"/sandboxes", `{"name":"b"}`, `{"name":"c"}`},
	} {
		key := fmt.Sprint("key", i)
		const clients = 4
		codes, texts := make([]int, clients), make([]string, clients)
		var wg sync.WaitGroup
		for n := range clients {
			wg.Go(func() { codes[n], texts[n] = w.once(w.admin, c.path, c.body, key) })
		}
		wg.Wait()
		if codes[0] >= 300 {
			t.Errorf("%s %s: %d %s", c.path, c.body, codes[0], texts[0])
			continue
		}
		code, text := w.once(w.admin, c.path, c.body, key)
		for n := range clients {
			if codes[n] != code || texts[n] != text && !strings.HasPrefix(c.path, "/sandboxes") { // its activity goes on
				t.Errorf("%s %s: %d %s, and later %d %s", c.path, c.body, codes[n], texts[n], code, text)
			}
		}
		if code, text := w.once(w.admin, c.path, c.other, key); code != 409 || read[server.Problem](t, text).Code != server.CodeConflict {
			t.Errorf("%s %s with the key of another: %d %s", c.path, c.other, code, text)
		}
	}
	if _, got := w.do(w.admin, "GET", "/api/v1"+box+"/files?path=n", "", ""); got != "x\nx\nx\n" {
		t.Errorf("commands ran %q", got)
	}
	if _, text := w.do(w.admin, "GET", "/api/v1/keys", "", ""); len(read[rest.List[rest.Key]](t, text).Items) != 3 {
		t.Errorf("the keys are %s", text)
	}
}

// TestRepeatsOfFailures: what was refused may be tried again with its key, and a
// key is its owner's.
func TestRepeatsOfFailures(t *testing.T) {
	w := start(t)
	if code, text := w.once(w.admin, "/images/pull", `{"reference":"private"}`, "k"); code != 409 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := w.once(w.admin, "/images/pull", `{"reference":"fine"}`, "k"); code != 200 {
		t.Errorf("after a failure: %d %s", code, text)
	}
	mine, theirs := w.create(w.user, `{}`), w.create(w.admin, `{}`)
	for key, id := range map[string]string{w.user: mine.ID, w.admin: theirs.ID} {
		if code, text := w.once(key, "/sandboxes/"+id+"/execute", `{"command":"true"}`, "k2"); code != 200 {
			t.Errorf("%d %s", code, text)
		}
	}
	if code, text := w.once(w.user, "/sandboxes/"+mine.ID+"/execute", `{"command":"true"}`, strings.Repeat("k", 256)); code != 400 {
		t.Errorf("a long key: %d %s", code, text)
	}
	if code, text := w.once(w.user, "/sandboxes/"+mine.ID+"/execute/stream", `{"command":"true","session":"s"}`, "k3"); code != 400 {
		t.Errorf("a stream of a session: %d %s", code, text)
	}
}

func TestIdempotency(t *testing.T) {
	w := start(t)
	_, text := w.once(w.user, "/sandboxes", `{"env":{"A":"1","B":"2"}}`, "once")
	first := read[rest.Sandbox](t, text)
	code, text := w.once(w.user, "/sandboxes", `{"env": {"B":"2", "A":"1"}}`, "once")
	if again := read[rest.Sandbox](t, text); code != 201 || again.ID != first.ID {
		t.Errorf("the same again: %d %s", code, text)
	}
	if code, text = w.once(w.user, "/sandboxes", `{"env":{"A":"2"}}`, "once"); code != 409 || read[server.Problem](t, text).Code != server.CodeConflict {
		t.Errorf("another body: %d %s", code, text)
	}
	if code, text = w.once(w.admin, "/sandboxes", `{}`, "once"); code != 201 || read[rest.Sandbox](t, text).ID == first.ID {
		t.Errorf("another owner: %d %s", code, text)
	}
}

// TestMakersAreRepeatable: a route that makes something takes the header. One that
// makes nothing is named here.
func TestMakersAreRepeatable(t *testing.T) {
	w := start(t)
	nothing := regexp.MustCompile(`/(start|stop|stdin|signal|resize|wait|pip|secrets)$|/files/|/network/`)
	_, text := w.do(w.user, "GET", "/openapi.json", "", "")
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		op, ok := operations["post"]
		if !ok || nothing.MatchString(path) {
			continue
		}
		if !slices.ContainsFunc(op.Parameters, func(p struct{ Name string }) bool { return p.Name == "Idempotency-Key" }) {
			t.Errorf("POST %s takes no Idempotency-Key", path)
		}
	}
}
