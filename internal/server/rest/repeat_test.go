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
	for i, c := range []struct{ path, body, other, want string }{
		{"/images/pull", `{"reference":"new.example/tool"}`, `{"reference":"new.example/other"}`, `"name":"new.example/tool"`},
		{box + "/sessions", `{"name":"s"}`, `{"name":"t"}`, `"name":"s"`},
		{box + "/execute", `{"command":"echo x >> n; cat; exit 3","stdin":"in"}`, `{"command":"echo x >> n; cat; exit 3","stdin":"other"}`, `"output":"in","stdout":"in","stderr":""`},
		{box + "/execute?encoding=base64", `{"command":"echo y; exit 3"}`, `{"command":"echo y"}`, `"output":"eQo=","stdout":"eQo=","stderr":""`},
		{box + "/execute", `{"command":"echo x >> n; sleep 1000","detach":true}`, `{"command":"true"}`, `"exit_code":null`},
		{box + "/execute", `{"command":"echo x >> n; echo z; echo e >&2","session":"s"}`, `{"command":"true","session":"s"}`, `"stdout":"z\n","stderr":"e\n"`},
		{box + "/execute/stream", `{"command":"echo x >> n; echo out"}`, `{"command":"true"}`, `"data":"out\n"`},
		{"/sandboxes", `{"name":"b"}`, `{"name":"c"}`, `"name":"b"`},
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
			if codes[n] != code || texts[n] != text && c.path != "/sandboxes" { // its activity goes on
				t.Errorf("%s %s: %d %s, and later %d %s", c.path, c.body, codes[n], texts[n], code, text)
			}
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s, want %s in it", c.path, c.body, text, c.want)
		}
		if code, text := w.once(w.admin, c.path, c.other, key); code != 409 || read[server.Problem](t, text).Code != server.CodeConflict {
			t.Errorf("%s %s with the key of another: %d %s", c.path, c.other, code, text)
		}
	}
	if _, got := w.do(w.admin, "GET", "/api/v1"+box+"/files?path=n", "", ""); got != "x\nx\nx\nx\n" {
		t.Errorf("commands ran %q", got)
	}
}

// TestRepeatsOfKeys: a key is made once and shown once. Who asks again learns which
// one it is, so that it can be revoked.
func TestRepeatsOfKeys(t *testing.T) {
	w := start(t)
	const clients = 4
	codes, texts := make([]int, clients), make([]string, clients)
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() { codes[n], texts[n] = w.once(w.admin, "/keys", `{"owner":"team","name":"ci"}`, "k") })
	}
	wg.Wait()
	i := slices.Index(codes, 201)
	if i < 0 {
		t.Fatalf("%v %s", codes, texts)
	}
	made := read[rest.NewKey](t, texts[i])
	if resp, _ := w.do(made.Secret, "GET", "/api/v1/version", "", ""); resp.StatusCode != 200 {
		t.Errorf("the key: %d", resp.StatusCode)
	}
	code, text := w.once(w.admin, "/keys", `{"owner":"team","name":"ci"}`, "k")
	codes, texts = append(slices.Delete(codes, i, i+1), code), append(slices.Delete(texts, i, i+1), text)
	for n := range codes {
		p := read[server.Problem](t, texts[n])
		if codes[n] != 409 || p.Code != server.CodeConflict || !strings.Contains(p.Detail, made.ID) || strings.Contains(texts[n], made.Secret) {
			t.Errorf("asked again: %d %s", codes[n], texts[n])
		}
	}
	if _, text := w.do(w.admin, "GET", "/api/v1/keys", "", ""); len(read[rest.List[rest.Key]](t, text).Items) != 3 {
		t.Errorf("the keys are %s", text)
	}
}

// TestRepeatsOfMuch: output that is too long to keep is cut for who asks again, and
// the command does not run again for it.
func TestRepeatsOfMuch(t *testing.T) {
	w := start(t)
	box := w.box()
	w.in("POST", box+"/sessions", `{"name":"s"}`, 201)
	path := strings.TrimPrefix(box, "/api/v1") + "/execute"
	for i, session := range []string{"", `,"session":"s"`} {
		body := `{"command":"echo x >> n; i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567é; i=$((i+1)); done; echo e >&2"` + session + `}`
		key := fmt.Sprint("key", i)
		code, text := w.once(w.user, path, body, key)
		if first := read[rest.ExecResult](t, text); code != 200 || len(first.Stdout) != 4000*31 || first.Stderr != "e\n" || first.Truncated.Stdout {
			t.Errorf("%s: %d, %d bytes", body, code, len(first.Stdout))
		}
		code, text = w.once(w.user, path, body, key)
		again := read[rest.ExecResult](t, text)
		for _, out := range []string{again.Output, again.Stdout} {
			if cut, ok := strings.CutSuffix(out, "\n... [output truncated]"); !ok || len(cut) < 8<<10 || strings.Contains(cut, "\uFFFD") {
				t.Errorf("%s again: %d, %d bytes, the end is %q", body, code, len(out), out[max(0, len(out)-40):])
			}
		}
		if code != 200 || again.Stderr != "e\n" || again.Truncated != (rest.Truncated{Stdout: true}) || *again.ExitCode != 0 || len(text) > 65<<10 {
			t.Errorf("%s again: %d %+v, %d bytes", body, code, again.Truncated, len(text))
		}
	}
	if got := w.in("GET", box+"/files?path=n", "", 200); got != "x\nx\n" {
		t.Errorf("commands ran %q", got)
	}
}

// TestRepeatsByOtherIDs: the ids of a sandbox are one.
func TestRepeatsByOtherIDs(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"name":"mine","user":"user","workdir":"/workspace"}`)
	var texts []string
	for _, id := range []string{sb.ID, sb.ShortID, "mine"} {
		code, made := w.once(w.user, "/sandboxes/"+id+"/sessions", `{"name":"s"}`, "k1")
		code2, ran := w.once(w.user, "/sandboxes/"+id+"/execute", `{"session":"s","command":"echo x >> n"}`, "k2")
		if code != 201 || code2 != 200 {
			t.Errorf("by %s: %d %s, %d %s", id, code, made, code2, ran)
		}
		texts = append(texts, made+ran)
	}
	if len(slices.Compact(texts)) != 1 {
		t.Errorf("answers are %s", texts)
	}
	if got := w.in("GET", "/api/v1/sandboxes/mine/files?path=n", "", 200); got != "x\n" {
		t.Errorf("commands ran %q", got)
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
	for range 2 {
		if code, text := w.once(w.user, "/sandboxes/"+mine.ID+"/execute", `{"command":"true","session":"later"}`, "k4"); code != 404 {
			t.Errorf("in no session: %d %s", code, text)
		}
	}
	w.in("POST", "/api/v1/sandboxes/"+mine.ID+"/sessions", `{"name":"later"}`, 201)
	if code, text := w.once(w.user, "/sandboxes/"+mine.ID+"/execute", `{"command":"true","session":"later"}`, "k4"); code != 200 {
		t.Errorf("in a session that is there now: %d %s", code, text)
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
	nothing := regexp.MustCompile(`/(start|stop|stdin|signal|resize|wait|pip|npm|apt|secrets)$|/files/|/network/`)
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
